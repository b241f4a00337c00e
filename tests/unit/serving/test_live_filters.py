"""Filters that are asked together: what they find, and when they are not."""

from typing import Any, cast

import pyarrow as pa
import pytest

from qanat.events.batch import Batch, Kind
from qanat.events.filters import parse
from qanat.serving import live_filters as listening
from qanat.serving.filter_cost import is_heavy
from qanat.serving.live_filters import Listeners
from qanat.serving.subscriber import Subscriber


def subscriber(where: str, number: int = 1) -> Subscriber:
    return Subscriber(cast(Any, None), number, 1, 1, parse(where))


def listen(listeners: Listeners, *subscribers: Subscriber) -> None:
    for each in subscribers:
        assert listeners.takes(each) and each.filter is not None
        listeners.listen(each, each.filter)


def batch(count: int, **columns: Any) -> Batch:
    values = pa.array([str(number % 10) for number in range(count)])
    return Batch.build(1, [b""] * count, first=1, attributes={"a": [values]}, **columns)


def found(listeners: Listeners, what: Batch) -> dict[int, list[int]] | None:
    result = listeners.find([what])
    if result is None:
        return None
    rows: dict[int, list[int]] = {}
    for each in result:
        for one in each.listeners:
            rows.setdefault(one.number, []).extend(each.rows.seqs().tolist())
    return rows


@pytest.mark.parametrize("pairs", [64, 1 << 18])
def test_however_many_rows_are_looked_at_at_a_time_the_same_is_found(
    monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    monkeypatch.setattr(listening, "_PAIRS", pairs)
    monkeypatch.setattr(listening, "_FIND_S", 60)
    listeners = Listeners()
    listen(
        listeners,
        subscriber("a = 3", 1),
        subscriber("a in (3, 4)", 2),
        subscriber("a ~ '^[34]'", 3),
        subscriber("b = 1", 4),
    )
    three, both = list(range(4, 501, 10)), sorted([*range(4, 501, 10), *range(5, 501, 10)])
    assert found(listeners, batch(500)) == {1: three, 2: both, 3: both}
    kinds = [Kind.DATA] * 499 + [Kind.GC]
    assert found(listeners, batch(500, kinds=kinds)) == {
        1: [*three, 500],
        2: [*both, 500],
        3: [*both, 500],
        4: [500],
    }


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a moment is over before anything was done in it."""
    monkeypatch.setattr(listening, "_FIND_S", 3600)


def test_what_would_take_long_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners = Listeners()
    listen(listeners, *(subscriber(f"a ~ 'x{number}'", number) for number in range(200)))
    assert found(listeners, batch(10)) == {}
    text = pa.array(["y" * 1_000_000])
    large = Batch.build(1, [b""], first=1, attributes={"a": [text]})
    assert found(listeners, large) is None
    monkeypatch.setattr(listening, "_FIND_S", 0)
    assert found(listeners, batch(10)) is None


def test_who_rests_is_sent_nothing_and_its_filter_stays_until_it_goes() -> None:
    listeners = Listeners()
    one, other = subscriber("a = 3", 1), subscriber("a = 3", 2)
    listen(listeners, one, other)
    listeners.rest(one)
    assert found(listeners, batch(10)) == {2: [4]}
    listen(listeners, one)
    listeners.forget(other)
    assert found(listeners, batch(10)) == {1: [4]}
    listeners.rest(one)
    listeners.forget(one)
    listeners.forget(one)
    assert found(listeners, batch(10)) == {}
    assert not listeners._numbers and not len(listeners._index)


def test_filters_that_cost_much_are_never_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_heavy(parse("a ~ '^X[LT]' and b in (1, 2, 3)"))
    assert is_heavy(parse("a ~ 'a[ab]{100}x'"))
    assert is_heavy(parse(" or ".join(f"a{number} = 1" for number in range(300))))
    listeners = Listeners()
    monkeypatch.setattr(listening, "_INDEXED_MAX", 2)
    listen(listeners, subscriber("a = 1"), subscriber("a = 2"))
    assert not listeners.takes(subscriber("a = 3"))
