"""Of each stream: up to where everything is dead (the prefix), and which event an age policy holds back.

The prefix comes from GC events (`upto`, `keep last`, `all`, `older than`) and from the policy (`keep_last`,
`age_ms`), as in `log.collector` and `log.collection`. What is older than some time is a prefix too: all that
comes before the first event that is not as old.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qanat.events.encode import Array
from qanat.log.config import Policy
from qanat.pipeline.compact.collectors import Collectors

_LEAST, _NONE = -(1 << 63), (1 << 63) - 1
_CUTOFFS_MAX = 64
"""Times that are looked for in one pass over a stream."""


@dataclass(frozen=True)
class Extents:
    """By the number of the stream."""

    prefix: Array
    """Everything up to this sequence number is dead."""
    newest: Array
    """The event that stays whatever its key or an attribute says, because it makes others old; 0 if there is
    none."""


def measure(rows: DataFrame, policies: Sequence[Policy], collectors: Collectors) -> Extents:
    """Looks at numbers, kinds and times of the rows, and only as far as a policy or a GC event asks."""
    prefix = np.zeros(len(policies), np.int64)
    newest = np.zeros(len(policies), np.int64)
    for group in collectors.groups:
        np.maximum.at(prefix, group.stream, group.predicate.prefix(group.seq))
    cutoffs, before = _cutoffs(collectors, len(policies))
    ages = [policy.age_ms for policy in policies]
    if any(age is not None for age in ages) or any(policy.keep_last is not None for policy in policies):
        last, newest_us = _ends(rows, len(policies))
        for no, policy in enumerate(policies):
            if policy.keep_last is not None:
                prefix[no] = max(prefix[no], last[no] - policy.keep_last)
            if policy.age_ms is not None and last[no]:
                cutoffs[no].append(max(int(newest_us[no]) - policy.age_ms * 1000, _LEAST))
                before[no].append(_NONE)
        if any(age is not None for age in ages):
            newest = np.where([age is not None for age in ages], _newest(rows, newest_us), 0)
    for start in range(0, max(map(len, cutoffs), default=0), _CUTOFFS_MAX):
        part = [mine[start : start + _CUTOFFS_MAX] for mine in cutoffs]
        for no, found in enumerate(_first_since(rows, part)):
            for first, bound in zip(found, before[no][start:], strict=False):
                prefix[no] = max(prefix[no], min(first, bound) - 1)
    return Extents(prefix, newest)


def _cutoffs(collectors: Collectors, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """For each stream: times before which age alone suffices for a GC event, and the number of that event."""
    cutoffs: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    for group in collectors.hunted():
        age_us = group.predicate.age_us
        if age_us is None:
            continue
        few = group.undominated(by_time=True, by_key=False)
        for no, seq, time_us in zip(few.stream.tolist(), few.seq.tolist(), few.time_us.tolist(), strict=True):
            cutoffs[no].append(max(time_us - age_us, _LEAST))
            before[no].append(seq)
    return cutoffs, before


def per_stream(values: Sequence[int] | Array, kind: str = "bigint") -> Column:
    """A number of each stream, by the row's column `no`."""

    numbers = [int(value) for value in values]
    if len(set(numbers)) == 1:
        return F.lit(numbers[0]).cast(kind)
    # One text, which Spark takes apart once, instead of a literal for each.
    return F.get(F.split(F.lit(",".join(map(str, numbers))), ",").cast(f"array<{kind}>"), F.col("no"))


def _table(found: DataFrame, count: int) -> dict[str, Array]:
    """Results by stream as columns; 0 where a stream has none."""
    table = found.toArrow()
    columns = {}
    for name in table.column_names:
        column = np.zeros(count, np.int64)
        column[np.asarray(table["no"])] = np.asarray(table[name].fill_null(0))
        columns[name] = column
    return columns


def _ends(rows: DataFrame, count: int) -> tuple[Array, Array]:
    """The last event of each stream that is no tombstone, and the newest time of such; 0 if there is none."""

    real = rows.where(F.col("kind") != "tombstone").select("no", "seq", F.unix_micros("time").alias("us"))
    found = _table(real.groupBy("no").agg(F.max("seq").alias("last"), F.max("us").alias("us")), count)
    return found["last"], found["us"]


def _newest(rows: DataFrame, newest_us: Array) -> Array:
    """The last event that has the newest time."""

    there = (F.col("kind") != "tombstone") & (F.unix_micros("time") == per_stream(newest_us))
    found = rows.where(there).select("no", "seq").groupBy("no").agg(F.max("seq").alias("seq"))
    return _table(found, len(newest_us))["seq"]


def _first_since(rows: DataFrame, cutoffs: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each stream and each of its times: the first row that was published then or later."""

    width = max(map(len, cutoffs))
    padded = [list(mine) + [_NONE] * (width - len(mine)) for mine in cutoffs]
    least = [min(mine) for mine in padded]
    slim = rows.select("no", "seq", F.unix_micros("time").alias("us")).where(F.col("us") >= per_stream(least))
    parts = [
        F.min(F.when(F.col("us") >= per_stream([mine[i] for mine in padded]), F.col("seq"))).alias(f"c{i}")
        for i in range(width)
    ]
    table = slim.groupBy("no").agg(*parts).toArrow()
    found = [[_NONE] * len(mine) for mine in cutoffs]
    columns = [table[f"c{i}"].fill_null(_NONE).to_pylist() for i in range(width)]
    for no, *firsts in zip(table["no"].to_pylist(), *columns, strict=True):
        found[no] = firsts[: len(cutoffs[no])]
    return found
