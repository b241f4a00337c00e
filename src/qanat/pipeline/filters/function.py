"""Filters that are too large for Spark: as one Arrow function that calls the columnar evaluator.

Spark looks at every node of an expression many times before it runs it. A filter with hundreds of tests would
be planned for minutes; the evaluator takes it as it is. What an event has beside its attributes (`@seq`,
`@key`, …) is given to it as attributes under other names.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from qanat.events.batch import Batch
from qanat.events.filters import Filter, evaluate
from qanat.events.filters.model import Among, Between, Exists, Regex, Term, Test, UpTo
from qanat.events.filters.words import BUILT_IN
from qanat.pipeline.attribute_maps import attributes_from


class _Rows:
    """As much of a batch as the evaluator looks at."""

    def __init__(self, count: int, columns: dict[str, list[pa.Array]]) -> None:
        self.count, self._columns = count, columns

    def attributes(self) -> dict[str, list[pa.Array]]:
        return self._columns


def function_of(f: Filter, column: Callable[[str], Column]) -> Column:
    """The filter as a column; it must not be contextual."""
    names = _names(f)
    plain = Filter(
        [Term(_renamed(term.test, names), term.negated) for term in terms] for terms in f.conjunctions
    )
    found = {
        "@key": lambda: F.when(F.octet_length(column("key")) > 0, column("key")),
        "@seq": lambda: column("seq"),
        "@time": lambda: F.unix_micros(column("time")),
        "@size": lambda: F.octet_length(column("payload")).cast("bigint"),
        "@kind": lambda: column("kind"),
        "@source": lambda: column("source").getField("name"),
    }
    needed = [(name, built_in) for built_in, name in names.items() if name in plain.names]
    given = [found[built_in]() for _, built_in in needed]

    def matches(attributes: pa.Array, types: pa.Array, *columns: pa.Array) -> pa.Array:
        named = attributes_from(attributes, types)
        for (name, _), values in zip(needed, columns, strict=True):
            named[name] = [values]
        return pa.array(evaluate(plain, cast(Batch, _Rows(len(attributes), named))))

    made: Any = arrow_udf  # its kind is told by the hints of what it is given
    return cast(Column, made(matches, "boolean")(column("attributes"), column("types"), *given))


def _names(f: Filter) -> dict[str, str]:
    """A short name for each of an event's own columns, which the filter does not use otherwise."""
    free = (name for name in map(chr, range(1, 1 << 11)) if name not in f.names)
    return dict(zip(sorted(BUILT_IN), free, strict=False))


def _renamed(test: Test, names: dict[str, str]) -> Test:
    match test:
        case Exists() | Among() | Between() | Regex():
            return replace(test, name=names.get(test.name, test.name))
        case UpTo(seq):
            return Between(names["@seq"], None, seq)
    return test


def size_of(tests: Iterable[Test]) -> int:
    """About how many nodes Spark would look at."""
    weights = {Exists: 1, UpTo: 1, Regex: 4, Among: 12, Between: 20}
    return sum(weights.get(type(test), 2) for test in tests)
