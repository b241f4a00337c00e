"""Feeding a stream: choices, losses, a stream that is set back, a datastore that is away."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.capture import Column, Lost, Op, Run, Start, Table, Updates
from qanat.capture.choice import Choice
from qanat.capture.continuity import Mark, compare, mark_of
from qanat.capture.errors import LogUnreachable, OtherLog
from qanat.capture.feed import Feed, source_of
from qanat.client import PositionsLost
from qanat.events.errors import LocalError
from qanat.events.filters import parse
from qanat.events.position import Position

COLUMNS = (Column("id", pa.int64(), key=True),)


def updates(*numbers: int, table: str = "orders", upto: int | None = None) -> Updates:
    shop = Table("shop", "public", table, COLUMNS)
    count = len(numbers)
    run = Run(
        shop,
        np.full(count, Op.INSERT, np.uint8),
        np.array(numbers, np.uint64),
        np.zeros(count, np.uint32),
        np.zeros(count, np.int64),
        pa.array(["t"] * count).dictionary_encode(),
        pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=shop.arrow),
    )
    return Updates([run], None if upto is None else Position(upto))


class Log:
    """Gives what it is told to, and notes what it is asked."""

    source = "shop"
    identified = True

    def __init__(self, *items: Updates | Lost | Exception) -> None:
        self.items = deque(items)
        self.sought: list[Start] = []
        self.acknowledged: list[Position] = []
        self.resumes: list[Position | None] = []

    def seek(self, start: Start) -> None:
        self.sought.append(start)

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        item = self.items.popleft()
        if isinstance(item, Exception):
            raise item
        return item

    def acknowledge(self, position: Position, resume: Position | None = None) -> None:
        self.acknowledged.append(position)
        self.resumes.append(resume)

    def advance(self, position: Position) -> None: ...

    def oldest(self) -> Position:
        return Position(0)

    def latest(self) -> Position:
        return Position(99)

    def close(self) -> None:
        pass


class Stream:
    """A client of one stream that has `reached` of it."""

    def __init__(self, reached: Position) -> None:
        self.reached = reached
        self.published: list[tuple[int, bytes]] = []
        self.trouble: Exception | None = None

    def position(self, stream: str) -> Position:
        return self.reached

    def publish_at(self, stream: str, payloads: Any, positions: Any, **more: Any) -> tuple[int, int]:
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        self.published += zip(positions[0].tolist(), payloads.to_pylist(), strict=True)
        return 0, 0


def feed(log: Log, stream: Stream, **more: Any) -> Feed:
    return Feed(log, stream, "s", **more)  # type: ignore[arg-type]


def test_it_goes_on_where_the_stream_is() -> None:
    for reached, sought in ((Position(0, 0), "latest"), (Position(7, 3), Position(7, 3))):
        log = Log()
        feed(log, Stream(reached), start="latest")
        assert log.sought == [sought]


def test_what_is_stored_is_acknowledged_and_what_was_passed_over_too() -> None:
    log, stream = Log(updates(8, 9), Updates([], Position(20))), Stream(Position(7))
    steps = feed(log, stream)
    assert steps.step() == (2, Position(9))
    assert steps.step() == (0, Position(20))
    assert [number for number, _ in stream.published] == [8, 9]
    assert log.acknowledged == [Position(9), Position(20)]
    assert log.resumes == [Position(9), Position(9)]


def test_only_what_is_chosen() -> None:
    both = Updates([*updates(8, 9).runs, *updates(10, table="other").runs])
    stream = Stream(Position(7))
    feed(Log(both), stream, choice=Choice(("shop.public.ord*",), parse("id in 9..99"))).step()
    assert [number for number, _ in stream.published] == [9]
    for pattern in ("other", "public.other", "shop.public.other", "*.other"):
        assert [len(Choice((pattern,)).of(both)), Choice((pattern,)).of(both).upto] == [1, Position(10)]
    with pytest.raises(LocalError, match="garbage collection"):
        Choice(where=parse("same key"))


@pytest.mark.paper("W13")
def test_what_is_missing_is_published_in_its_place() -> None:
    said: list[str] = []
    lost = Lost(Position(7), Position(9, 2), "the files were purged")
    stream = Stream(Position(7))
    fed = feed(Log(lost), stream, say=said.append)
    fed.step()
    assert fed.losses == 1
    assert stream.published == [
        (9, b'{"lost":{"after":"7:0","upto":"9:2","reason":"the files were purged"}}')
    ]
    assert "up to 9:2 is gone" in said[0]


def test_a_stream_that_was_set_back_is_fed_again_from_there() -> None:
    log, stream = Log(updates(8)), Stream(Position(7))
    stream.trouble = PositionsLost("s", "shop", Position(7), Position(3))
    assert feed(log, stream).step() == (0, None)
    assert log.sought == [Position(7), Position(3)]
    assert log.acknowledged == []


def test_a_datastore_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    away = LogUnreachable("no answer")
    said: list[str] = []
    steps = feed(
        Log(away, away, updates(8), *[away] * 99), Stream(Position(7)), say=said.append, patience_s=3
    )
    assert [steps.step().events for _ in range(3)] == [0, 0, 1]
    with pytest.raises(LogUnreachable):
        for _ in range(20):
            steps.step()
    assert said == ["trying again for up to 3 s: no answer"] * 2


def test_a_dataset_that_others_may_be_called_is_not_fed() -> None:
    log = Log(updates(8))
    log.identified = False
    with pytest.raises(LocalError, match=r"'shop' may be the name of another dataset.*\?dataset=NAME"):
        feed(log, Stream(Position(7)))


def test_every_choice_of_a_log_is_a_source_of_its_own() -> None:
    log = Log()
    choices = [
        Choice(),
        Choice(("a",)),
        Choice(("b",)),
        Choice(where=parse("n = 1")),
        Choice(("a",), parse("n = 1")),
    ]
    names = [source_of(log, choice) for choice in choices]
    assert names[0] == "shop"
    assert len(set(names)) == len(names)
    assert source_of(log, Choice(("b", "a", "b"))) == source_of(log, Choice(("a", "b")))


class Expecting(Log):
    expected: Mark | None = None

    def expect(self, last: Mark) -> None:
        self.expected = last


def test_what_the_stream_has_last_is_what_the_log_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = updates(7).runs
    last = mark_of(run, 0)
    asked: list[Any] = []

    def find(client: Any, stream: str, source: str, position: Position) -> Mark | None:
        asked.append((stream, source, position))
        return last if len(asked) == 1 else None

    monkeypatch.setattr("qanat.capture.feed.last_of", find)
    for expected in (last, None):  # what is not found is not compared
        log = Expecting()
        feed(log, Stream(Position(7)), choice=Choice(("orders",)))
        assert log.expected == expected
    assert asked[0] == ("s", source_of(Log(), Choice(("orders",))), Position(7))
    feed(Expecting(), Stream(Position(0, 0)))
    assert len(asked) == 2
    compare(last, last, "it")
    for other in (None, last._replace(time_us=1), last._replace(key=b"9")):
        with pytest.raises(OtherLog, match=r"it is not the log that was read before: at 7:0"):
            compare(last, other, "it")
