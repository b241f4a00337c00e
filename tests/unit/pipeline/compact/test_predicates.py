"""What GC events ask for, many at a time: as the log's collector has it, one at a time."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from qanat.events.filters import Context, FilterError, parse
from qanat.log import Policy
from qanat.log.collector import prefix_of
from qanat.pipeline.compact.collectors import Group
from qanat.pipeline.compact.policies import NoPolicy, policies_of, policy_of
from qanat.pipeline.compact.predicates import Predicate, read

pytestmark = pytest.mark.paper("D5")
TEXTS = [
    "upto 5",
    "keep last 3",
    "all",
    "not all",
    "upto 9 and keep last 2 or upto 4",
    "upto 7 or colour = red",
    "same key",
    "not upto 5",
    "older than 5s or older than 2s and colour = red",
    "upto 18446744073709551615",
    "keep last 18446744073709551615",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_prefix_of_many_is_that_of_each(text: str) -> None:
    predicate = Predicate(parse(text))
    seqs = np.arange(1, 20)
    for seq, bound in zip(seqs.tolist(), predicate.prefix(seqs).tolist(), strict=True):
        bounds = [prefix_of(c, Context(seq)) for c in predicate.filter.conjunctions]
        assert bound == max((b for b in bounds if b is not None), default=0)
        assert predicate.hunted == (None in bounds and text != "same key")


def test_what_a_predicate_speaks_of() -> None:
    assert Predicate(parse("older than 5s or older than 2s and colour = red")).age_us == 5_000_000
    assert Predicate(parse("same key and older than 5s")).age_us is None
    assert Predicate(parse("same key and older than 5s")).monotone
    assert not Predicate(parse("not older than 5s")).monotone
    assert read("colour =") is None


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("by_key", [False, True])
def test_superfluous_gc_events_are_those_that_a_later_one_outdoes(by_time: bool, by_key: bool) -> None:
    rng = random.Random(f"{by_time} {by_key}")
    for _ in range(50):
        count = rng.randint(0, 30)
        rows = sorted((rng.randint(0, 2), n) for n in range(1, count + 1))
        stream, seq = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
        times = np.array([rng.choice([-(1 << 62), 0, 1, 2, 3, 1 << 62]) for _ in rows], np.int64)
        keys = [rng.choice([b"", b"a", b"b"]) for _ in rows]
        group = Group(Predicate(parse("all")), stream, seq, times, pa.array(keys, pa.binary()))
        few = group.undominated(by_time=by_time, by_key=by_key)
        kept = {
            i
            for i in range(count)
            if not any(
                stream[j] == stream[i]
                and seq[j] > seq[i]
                and (not by_time or times[j] >= times[i])
                and (not by_key or keys[j] == keys[i])
                for j in range(count)
            )
        }
        assert set(zip(few.stream.tolist(), few.seq.tolist(), strict=True)) == {
            (int(stream[i]), int(seq[i])) for i in kept
        }
        assert few.seq.tolist() == group.take(np.array(sorted(kept), np.int64)).seq.tolist()


def test_a_policy_is_written_as_a_predicate() -> None:
    assert policy_of("same key or keep last 10 or older than 2s") == Policy(
        by_key=True, keep_last=10, age_ms=2000
    )
    assert policies_of(["keep last 3", "orders=same key"]) == (
        Policy(keep_last=3),
        {"orders": Policy(by_key=True)},
    )
    for wrong in ("same key and keep last 3", "colour = red", "older than 3us", "not same key", "upto 3"):
        with pytest.raises(NoPolicy, match="is no policy"):
            policies_of([wrong])
    with pytest.raises(FilterError):
        policies_of(["same"])
