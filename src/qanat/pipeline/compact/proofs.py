"""Which GC events may go: those of which all that they collected is collected by another (Sprinkler, section
2.1).

A GC event that another's predicate matches is looked at here, on the driver, since the proof is
(`filters.implication`). One with the predicate `same key` can be proved only by an alternative that asks for
nothing but key and number, so the many of that kind mostly stay where they are.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qanat.events.encode import Array
from qanat.events.filters import Context, Filter, implies
from qanat.events.filters.model import (
    Among,
    Conjunction,
    Exists,
    KeepLast,
    OlderThan,
    SameKey,
    Term,
    Test,
    Text,
    UpTo,
)
from qanat.log.collector import Collector
from qanat.log.config import LogConfig, Policy
from qanat.pipeline.compact.collectors import Collectors, Group, predicate_text
from qanat.pipeline.compact.predicates import is_contextual, read
from qanat.pipeline.filters.columns import column_of

_ALWAYS = ("@seq", "@time", "@kind", "@size")
_NONE = np.zeros(0, np.int64)


def proved(rows: DataFrame, collectors: Collectors, policies: Sequence[Policy]) -> tuple[Array, Array]:
    """(stream, number) of GC events that are matched by another, with a proof that they are no longer
    needed."""
    hunted = list(collectors.hunted())
    if not hunted:
        return _NONE, _NONE
    candidates = _candidates(rows, hunted, collectors.same_key_texts)
    judge = _Judge(hunted, candidates, policies)
    gone = [row for row in range(candidates.num_rows) if judge.may_go(row)]
    columns = [np.asarray(candidates[name]).astype(np.int64)[gone] for name in ("no", "seq")]
    return columns[0], columns[1]


def _candidates(rows: DataFrame, hunted: list[Group], same_key_texts: Sequence[str]) -> pa.Table:
    """GC events with a flag for each alternative of each predicate: whether it holds, apart from what it says
    of its GC event."""

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


class _Carriers:
    """The GC events of one predicate that may prove something, and where its flags are.

    Of two with the same predicate the later one, if it is no older, matches and proves all that the other
    does; unless it matters which key it has. That it does only for events of its own key, and for GC events
    that name a key themselves.
    """

    def __init__(self, group: Group, first_flag: int, *, by_age: bool) -> None:
        predicate = group.predicate
        self.filter = predicate.filter
        self.flags = slice(first_flag, first_flag + len(self.filter.conjunctions))
        by_time = predicate.needs_time or by_age
        self._general = group.undominated(by_time=by_time, by_key=False) if predicate.monotone else group
        self._keyed = (
            group.undominated(by_time=by_time, by_key=True) if predicate.monotone else group.take(_NONE)
        )
        self._of_key: dict[tuple[int, bytes], list[int]] = {}
        for i, owner in enumerate(zip(self._keyed.stream.tolist(), self._keyed.key.to_pylist(), strict=True)):
            self._of_key.setdefault(owner, []).append(i)

    def after(self, no: int, seq: int, keys: Iterable[bytes]) -> Iterator[Context]:
        """Those to be tried for an event, the latest first; `keys` are its own and those that it names."""
        low, high = np.searchsorted(self._general.stream, [no, no + 1])
        low += int(np.searchsorted(self._general.seq[low:high], seq, "right"))
        yield from (self._general.context(i) for i in range(int(high) - 1, int(low) - 1, -1))
        for key in keys:
            found = (self._keyed.context(i) for i in reversed(self._of_key.get((no, key), [])))
            yield from (context for context in found if context.seq > seq)


class _Judge:
    """Compares GC events with those that match them."""

    def __init__(self, hunted: list[Group], candidates: pa.Table, policies: Sequence[Policy]) -> None:
        self._policies = [Collector(LogConfig(policy=policy)) for policy in policies]
        by_age = any(policy.age_ms is not None for policy in policies)
        self._carriers: list[_Carriers] = []
        flags = 0
        for group in hunted:
            self._carriers.append(_Carriers(group, flags, by_age=by_age))
            flags += len(group.predicate.filter.conjunctions)
        self._flags = np.asarray(candidates["flags"].combine_chunks().values).reshape(-1, max(flags, 1))
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
            for mine, other in self._matching(self._flags[row], no, context, _keys_of(key, predicate.filter))
        )

    def _matching(
        self, flags: Array, no: int, event: Context, keys: Sequence[bytes]
    ) -> Iterator[tuple[Filter, Context]]:
        for carriers in self._carriers:
            mine = flags[carriers.flags]
            if not mine.any():
                continue
            holding = [c for c, flag in zip(carriers.filter.conjunctions, mine, strict=True) if flag]
            for gc in carriers.after(no, event.seq, keys):
                if any(_holds(conjunction, event, gc) for conjunction in holding):
                    yield carriers.filter, gc


def _keys_of(key: bytes, predicate: Filter) -> list[bytes]:
    """The keys that events collected by it may be known to have: its own, and those that it names."""
    named = [
        value.value.encode()
        for test in predicate.tests
        if isinstance(test, Among) and test.name == "@key"
        for value in test.values
        if isinstance(value, Text)
    ]
    return [k for k in dict.fromkeys([key, *named]) if k]


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
