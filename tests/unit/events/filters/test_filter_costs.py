"""What a filter may cost: its patterns as RE2 unfolds them, and the memory of filters that are remembered."""

import subprocess
import sys

import pytest

from qanat.events.batch import Batch
from qanat.events.filters import Filter, FilterError, parse
from qanat.events.filters.known import KnownFilters
from qanat.events.filters.pattern_size import pattern_size
from qanat.events.filters.words import MAX_PATTERNS_SIZE
from qanat.events.tombstones import gc_event
from qanat.log import collector
from qanat.log.collector import Collector
from qanat.log.config import LogConfig


@pytest.mark.parametrize(
    "pattern",
    [
        r"((\pL|\pN)*){300}x",
        r"\pL{100}",
        r"(\pL*){26}",
        r"((a{30}){30}){30}",
        r"((.{9}){9}){99}",
        r"[\pL\pN]{12}",
        r"(\PL?){999}",
    ],
)
def test_a_pattern_that_unfolds_to_a_huge_program_is_refused_before_it_is_compiled(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("qanat.events.filters.model.refusal", compiled.append)
    with pytest.raises(FilterError, match=r"the pattern unfolds to about .*at most 20000 in one filter"):
        parse(f"t ~ '{pattern}'")
    assert not compiled


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z0-9.]+@[a-z]+\.[a-z]{2,4}$",
        r"\pL+ \pN+",
        r"\d{4}-\d{2}-\d{2}",
        "(?i)(error|warning).{0,200}disk",
        r"\Q{300}\E",
        "a{,3}",
        r"x{2000",
        r"[]a{99}]",
    ],
)
def test_usual_patterns_are_far_below_the_limit(pattern: str) -> None:
    assert pattern_size(pattern) < MAX_PATTERNS_SIZE / 4
    parse(f"t ~ '{pattern}'")


def test_repetitions_multiply_whatever_way_they_are_written() -> None:
    assert pattern_size("(abc){100}") >= 100 * pattern_size("abc")
    assert pattern_size("(abc){2,100}?") >= 100 * pattern_size("abc")
    assert pattern_size("((abc){10,}){10}") >= 100 * pattern_size("abc")
    assert pattern_size("(?P<n>(?i:abc)){100}") >= 100 * pattern_size("abc")
    assert pattern_size(r"[\pL]{10}") >= 10 * pattern_size(r"\pL") - 10
    assert pattern_size("(((((") >= 0 and pattern_size(")))") >= 0  # RE2 says what is wrong with these


def test_the_patterns_of_one_filter_have_one_limit_together() -> None:
    one = r"\pL{6}"
    parse(f"t ~ '{one}'")
    with pytest.raises(FilterError, match="the filter's patterns unfold to about"):
        parse(" or ".join(f"t{i} ~ '{one}{i}'" for i in range(5)))
    assert parse(f"a ~ '{one}' or b ~ '{one}'").patterns_size == pattern_size(one)


def test_filters_are_remembered_up_to_a_number_of_bytes() -> None:
    known = KnownFilters(1000)
    first = known.parse("a = 1")
    assert known.parse("a = 1") is first
    for i in range(100):
        known.parse(f"a = 'some text {i}'")
    assert known.bytes <= 1000
    assert known.get("a = 1") is None and known.get("a = 'some text 99'") is not None
    long = " or ".join(f"a = {i}" for i in range(200))
    assert isinstance(known.parse(long), Filter) and known.get(long) is None and known.bytes <= 1000
    known.clear()
    assert known.bytes == 0 and known.get("a = 'some text 99'") is None


def test_predicates_that_wait_for_their_hunt_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "HUNTED_BYTES_MAX", 20_000)
    collecting = Collector(LogConfig())
    for i in range(100):
        large = " or ".join(f"a{i} = {j}" for j in range(100))
        head = gc_event(1, large)
        collecting.ingest(Batch.build(1, [b""], first=i + 1, kinds=[1], attributes=[head.attribute_row(0)]))
    assert sum(len(hunt.predicate.text) for hunt in collecting.hunts) <= 20_000
    assert collecting.hunt_again_from == len(collecting.hunts) + 1
    while collecting.hunts:
        collecting.hunted(collecting.hunts[0])
    assert collecting._hunted_bytes == 0


def test_the_memory_of_filters_that_are_gone_is_given_back() -> None:
    """In a process of its own: a few objects that stay among millions that go kept all of it."""
    program = """
from qanat.events.filters import parse
from qanat.runtime.memory import give_back, own_bytes
parse("a = 1")
before = own_bytes()
filters = [parse(" or ".join(f"a{i} = '{number}.{i}'" for i in range(1_000))) for number in range(60)]
taken = own_bytes() - before
del filters
give_back()
print(taken, own_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    taken, left = map(int, done.stdout.split())
    assert left < taken / 2
