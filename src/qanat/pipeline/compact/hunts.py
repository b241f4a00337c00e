"""Hunts: which events the predicates of GC events match, as Spark columns.

Of an alternative of a predicate, what speaks of the event alone is one boolean column (`filter_columns`).
What speaks of the GC event as well (`same key`, `keep last`, `older than`, and that it comes later) is asked
of the GC events that carry the predicate. Those that a later one makes superfluous are left out first, so
that mostly one is left for each predicate, or for each key.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qanat.events.filters import Filter
from qanat.events.filters.model import Conjunction, SameKey, Term
from qanat.log.config import Policy
from qanat.pipeline.compact.collectors import Group, TooManyCollectors
from qanat.pipeline.compact.extents import per_stream
from qanat.pipeline.compact.predicates import is_contextual, is_keyed
from qanat.pipeline.filters.columns import ContextColumns, column_of

PREDICATES_MAX = 100
"""Predicates that go over the rows together: Spark compiles their columns into one function."""
CONTEXTS_MAX = 10_000
"""GC events of one predicate that every row is compared with: those that no later one makes superfluous,
mostly one."""
_CONTEXT = "struct<seq:bigint,time_us:bigint,key:binary>"


def matches(rows: DataFrame, hunted: Sequence[Group], policies: Sequence[Policy]) -> list[DataFrame]:
    """(no, seq) of data events that a GC event with another predicate than `same key` collects.

    Under the key-based policy an event with a key is a GC event itself, and not among them.
    """

    by_key = per_stream([policy.by_key for policy in policies], "int") == 1
    candidates = rows.where((F.col("kind") == "data") & ~(by_key & (F.octet_length("key") > 0)))
    found = []
    for start in range(0, len(hunted), PREDICATES_MAX):
        part = [_Hunted(i, group) for i, group in enumerate(hunted[start : start + PREDICATES_MAX])]
        looked, keyed = _with_keyed(candidates, part)
        flags = [hunt.column(len(policies), keyed) for hunt in part]
        found.append(looked.where(_any(flags)).select("no", "seq"))
    return found


def _any(flags: Sequence[Column]) -> Column:

    return F.exists(F.array(*flags), lambda flag: flag) if len(flags) > 8 else _or(list(flags))


def _or(flags: list[Column]) -> Column:
    result = flags[0] if flags else F.lit(False)
    for flag in flags[1:]:
        result = result | flag
    return result


@dataclass(frozen=True)
class _Hunted:
    """One predicate, and the GC events that carry it."""

    index: int
    group: Group

    @property
    def few(self) -> Group:
        """Those GC events that are not superfluous."""
        predicate = self.group.predicate
        if not predicate.monotone:
            return self.group
        return self.group.undominated(by_time=predicate.needs_time, by_key=predicate.needs_key)

    def column(self, streams: int, keyed: Column | None) -> Column:
        from pyspark.sql import functions as F

        conjunctions = self.group.predicate.filter.conjunctions
        parts = []
        if any(not is_keyed(c) for c in conjunctions):
            contexts = contexts_of(self.few, streams)
            parts += [self._conjunction(c, contexts) for c in conjunctions if not is_keyed(c)]
        if keyed is not None and any(is_keyed(c) for c in conjunctions):
            mine = F.filter(keyed, lambda g: g["predicate"] == self.index)
            parts += [self._conjunction(c, mine) for c in conjunctions if is_keyed(c)]
        return _or(parts)

    def _conjunction(self, conjunction: Conjunction, contexts: Column) -> Column:
        plain = column_of(Filter([[term for term in conjunction if not is_contextual(term)]]))
        return plain & F.coalesce(F.exists(contexts, in_context(conjunction)), F.lit(False))


def in_context(conjunction: Conjunction) -> Callable[[Column], Column]:
    """What a conjunction asks of an event and its GC event, as a function of the latter."""

    terms = [
        t for t in conjunction if is_contextual(t) and not (is_keyed(conjunction) and t == Term(SameKey()))
    ]

    def test(g: Column) -> Column:
        later = F.col("seq") < g["seq"]
        if not terms:
            return later
        key = F.lit(b"") if is_keyed(conjunction) else g["key"]
        return later & column_of(Filter([terms]), ContextColumns(g["seq"], key, g["time_us"]))

    return test


def contexts_of(group: Group, streams: int, limit: int = CONTEXTS_MAX) -> Column:
    """The GC events of the row's stream, as an array; null if there are none. One literal, which Spark reads
    once."""

    if len(group) > limit:
        raise TooManyCollectors(
            f"there are {len(group)} garbage collection events `{group.predicate.filter}` of which none makes"
            f" another superfluous, and at most {limit} are taken in one go: compact in steps, with --upto"
        )
    lists: list[list[dict[str, object]]] = [[] for _ in range(streams)]
    for no, seq, time_us, key in zip(
        group.stream.tolist(), group.seq.tolist(), group.time_us.tolist(), group.key.to_pylist(), strict=True
    ):
        lists[no].append({"seq": seq, "time_us": time_us, "key": base64.b64encode(key or b"").decode()})
    if streams == 1:
        return F.from_json(F.lit(json.dumps(lists[0])), f"array<{_CONTEXT}>")
    return F.get(F.from_json(F.lit(json.dumps(lists)), f"array<array<{_CONTEXT}>>"), F.col("no"))


def _with_keyed(rows: DataFrame, hunted: Sequence[_Hunted]) -> tuple[DataFrame, Column | None]:
    """The rows with the GC events of their key, for predicates that ask for `same key` beside other
    things."""

    asking = [hunt for hunt in hunted if any(is_keyed(c) for c in hunt.group.predicate.filter.conjunctions)]
    tables = [_keyed_table(hunt) for hunt in asking]
    # In one piece: of a table with an empty one among its pieces Spark takes only what comes before that.
    table = pa.concat_tables(tables).combine_chunks() if tables else None
    if table is None or not table.num_rows:
        return rows, None
    session = rows.sparkSession
    collected = (
        session.createDataFrame(table)
        .groupBy(F.col("no").alias("key_no"), F.col("gc_key"))
        .agg(F.collect_list(F.struct("predicate", "seq", "time_us")).alias("gc_events"))
    )
    joined = rows.join(
        collected, (F.col("key") == F.col("gc_key")) & (F.col("no") == F.col("key_no")), "left"
    )
    return joined, F.col("gc_events")


def _keyed_table(hunt: _Hunted) -> pa.Table:
    few = hunt.few
    few = few.take(np.flatnonzero(np.asarray(pa.compute.binary_length(few.key)) > 0))
    return pa.table(
        {
            "no": pa.array(few.stream.astype(np.int32)),
            "gc_key": few.key,
            "predicate": pa.array(np.full(len(few), hunt.index, np.int32)),
            "seq": pa.array(few.seq),
            "time_us": pa.array(few.time_us),
        }
    )
