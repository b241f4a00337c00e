"""Which GC events may go: those of which all that they collected is collected by another (Sprinkler, section 2.1).

A GC event that another's predicate matches is looked at here, on the driver, since the proof is (`filters.implication`). One with the predicate `same key`
can be proved only by an alternative that asks for nothing but key and number, so the many of that kind mostly stay where they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qanat.events.encode import Array
from qanat.events.filters import Context, Filter, implies
from qanat.events.filters.model import (
    Conjunction,
    Exists,
    KeepLast,
    OlderThan,
    SameKey,
    Term,
    Test,
    UpTo,
)
from qanat.log.collector import Collector
from qanat.log.config import LogConfig, Policy
from qanat.pipeline.compact.collectors import Collectors, Group, predicate_text
from qanat.pipeline.compact.predicates import is_contextual, read
from qanat.pipeline.filter_columns import column_of

_ALWAYS = ("@seq", "@time", "@kind", "@size")


def proved(rows: DataFrame, collectors: Collectors, policies: Sequence[Policy]) -> tuple[Array, Array]:
    """(stream, number) of GC events that are matched by another, with a proof that they are no longer needed."""
    hunted = list(collectors.hunted())
    if not hunted:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    candidates = _candidates(rows, hunted, collectors.same_key_texts)
    judge = _Judge(hunted, candidates, policies)
    gone = [row for row in range(candidates.num_rows) if judge.may_go(row)]
    columns = [np.asarray(candidates[name]).astype(np.int64)[gone] for name in ("no", "seq")]
    return columns[0], columns[1]


def _candidates(rows: DataFrame, hunted: list[Group], same_key_texts: Sequence[str]) -> pa.Table:
    """GC events with a flag for each alternative of each predicate: whether it holds, apart from what it says of its GC event."""

    plain, for_keys = [], []
    for group in hunted:
        for conjunction in group.predicate.filter.conjunctions:
            plain.append(column_of(Filter([[t for t in conjunction if not is_contextual(t)]])))
            for_keys.append(_of_key_and_number(conjunction))
    table = (
        rows.where(F.col("kind") == "gc")
        .withColumns({"text": predicate_text(), "flags": F.array(*plain)})
        .where(F.col("text").isNotNull())
    )
    same_key = F.col("text").isin(list(same_key_texts))
    suits = F.exists(F.arrays_zip("flags", F.lit(for_keys).alias("suits")), lambda f: f["flags"] & f["suits"])
    wanted = F.when(same_key & (F.col("seq") > 1), suits).otherwise(F.exists("flags", lambda flag: flag))
    return (
        table.where(wanted)
        .select("no", "seq", "key", F.unix_micros("time").alias("time_us"), "text", "flags")
        .toArrow()
        .combine_chunks()
    )


def _of_key_and_number(conjunction: Conjunction) -> bool:
    """Whether it may follow from a key and a bound of the number, which is all that `same key` says."""

    def possible(term: Term) -> bool:
        test: Test = term.test
        match test:
            case SameKey() | UpTo() | KeepLast():
                return True
            case OlderThan():
                return term.negated
            case Exists(name) if not term.negated and name in _ALWAYS:
                return True
            case _:
                return test.name in ("@key", "@seq")

    return all(map(possible, conjunction))


@dataclass(frozen=True)
class _Carriers:
    """The GC events of one predicate that may prove something, and where its flags are."""

    group: Group
    filter: Filter
    first_flag: int


class _Judge:
    """Compares GC events with those that match them, the latest first."""

    def __init__(self, hunted: list[Group], candidates: pa.Table, policies: Sequence[Policy]) -> None:
        self._policies = [Collector(LogConfig(policy=policy)) for policy in policies]
        by_age = any(policy.age_ms is not None for policy in policies)
        by_key = any(policy.by_key for policy in policies)
        self._carriers = []
        flag = 0
        for group in hunted:
            predicate = group.predicate
            if predicate.monotone:
                group = group.undominated(
                    by_time=predicate.needs_time or by_age, by_key=predicate.needs_key or by_key
                )
            self._carriers.append(_Carriers(group, predicate.filter, flag))
            flag += len(predicate.filter.conjunctions)
        self._rows = candidates
        self._flags = np.asarray(candidates["flags"].combine_chunks().values).reshape(-1, max(flag, 1))
        self._columns = [candidates[name].to_pylist() for name in ("no", "seq", "key", "time_us", "text")]

    def may_go(self, row: int) -> bool:
        no, seq, key, time_us, text = (column[row] for column in self._columns)
        predicate = read(text)
        if predicate is None:
            return False
        context = Context(seq, key, time_us)
        its = self._policies[no].with_policy(predicate.filter)
        return any(
            implies(its, context, self._policies[no].with_policy(mine), other)
            for mine, other in self._matching(row, no, context)
        )

    def _matching(self, row: int, no: int, event: Context) -> Iterator[tuple[Filter, Context]]:
        for carriers in self._carriers:
            flags = self._flags[
                row, carriers.first_flag : carriers.first_flag + len(carriers.filter.conjunctions)
            ]
            if not flags.any():
                continue
            group = carriers.group
            low, high = np.searchsorted(group.stream, [no, no + 1])
            low += int(np.searchsorted(group.seq[low:high], event.seq, "right"))
            for i in range(high - 1, low - 1, -1):
                gc = Context(int(group.seq[i]), group.key[i].as_py(), int(group.time_us[i]))
                if any(
                    flag and _holds(conjunction, event, gc)
                    for flag, conjunction in zip(flags, carriers.filter.conjunctions, strict=True)
                ):
                    yield carriers.filter, gc


def _holds(conjunction: Conjunction, event: Context, gc: Context) -> bool:
    """What a conjunction says of an event and its GC event."""
    for term in conjunction:
        match term.test:
            case SameKey():
                passed = bool(gc.key) and event.key == gc.key
            case KeepLast(count):
                passed = event.seq <= gc.seq - count
            case OlderThan(age_us):
                passed = event.time_us < gc.time_us - age_us
            case _:
                continue
        if passed == term.negated:
            return False
    return True
