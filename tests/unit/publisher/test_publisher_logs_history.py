"""Readers of a publisher's log notice that it is not the one that was read before: on the files of RocksDBs,
whose batches the test writes."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.rocksdb import batch, database, log_file, put, write_log

from qanat.capture import LogReader
from qanat.capture.errors import LogUnreachable
from qanat.capture.sharding import Sharding
from qanat.capture.url import open_reader
from qanat.checks.publisher_log import positions_in
from qanat.events.position import Position
from qanat.protocols.publisher.reading import ReadLog, WasLost, WasOther, WasRead
from qanat.protocols.publisher.witness import Witness
from qanat.publisher import logs as publisher_logs
from qanat.publisher.logs import Readers

pytestmark = pytest.mark.paper("W10")
OLD = {1: b"a", 2: b"b", 3: b"c", 4: b"d", 5: b"e", 6: b"f"}
OTHER = OLD | {3: b"x", 4: b"y", 5: b"z"}
"""The same up to 2; and what was written elsewhere since."""


class Copies:
    """Databases with logs as a test says, and the reader of a caravan of one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open: list[Readers] = []
        self.fails: list[Exception] = []
        """What the next reads end in."""

    def write(self, name: str, keys: dict[int, bytes], *, purged: int = 0) -> None:
        place = database(self._folder / name)
        for file, after in ((3, 0), (5, purged)):  # each batch of one update has a sequence number of its own
            records = [
                batch(number, put(key, b"v"))
                for number, key in keys.items()
                if number > after and (number > purged) == (file == 5)
            ]
            if records and (file == 5 or not purged):
                write_log(place, file, log_file(records))

    def open(self, name: str) -> Readers:
        def opened() -> LogReader:
            reader = open_reader(f"rocksdb://{self._folder / name}?dataset=d")
            plain = reader.read

            def read(limit: int, wait_s: float = 0.0) -> Any:
                if self.fails:
                    raise self.fails.pop(0)
                return plain(limit, wait_s)

            reader.read = read  # type: ignore[method-assign]
            return reader

        made = Readers(opened, Sharding("key"), 1 << 20, self._told.put)
        self._open.append(made)
        return made

    def ask(self, readers: Readers, after: int, *seen: Witness, rows: int = 100) -> Any:
        readers.read(ReadLog(1, Position(after), rows, seen=seen))
        return self._told.get(timeout=300)

    def seen(self, name: str, upto: int) -> Witness:
        """What somebody knows who read that log up to there."""
        found = self.ask(self.open(name), 0, rows=upto)
        assert isinstance(found, WasRead) and found.upto == Position(upto)
        return Witness(found.upto, found.mark)

    def close(self) -> None:
        for readers in self._open:
            readers.close()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    made = Copies(tmp_path)
    made.write("old", OLD)
    made.write("other", OTHER)
    yield made
    made.close()


def test_a_replica_goes_on_where_it_has_what_was_read_before(copies: Copies) -> None:
    copies.write("replica", OLD)
    found = copies.ask(copies.open("replica"), 4, copies.seen("old", 4))
    assert isinstance(found, WasRead) and found.batch is not None
    assert positions_in(found.batch) == [Position(5), Position(6)]
    assert found.upto == Position(6)
    here = Witness(Position(4), copies.seen("replica", 4).mark)
    both = copies.ask(copies.open("replica"), 4, copies.seen("old", 4), here)
    assert isinstance(both, WasRead), "whichever of the copies they have it from"


def test_one_with_another_history_gives_nothing_and_says_what_disagrees(copies: Copies) -> None:
    witness = copies.seen("old", 4)
    found = copies.ask(copies.open("other"), 4, witness)
    assert isinstance(found, WasOther)
    assert (found.after, found.seen) == (Position(4), witness)
    assert "at 4:0 it has put of other.default '79'" in found.reason
    assert "where there was put of other.default '64'" in found.reason
    agreed = copies.ask(copies.open("other"), 2, copies.seen("old", 2))
    assert isinstance(agreed, WasRead), "up to there they are the same"


def test_also_after_reads_that_failed(copies: Copies) -> None:
    readers = copies.open("other")
    copies.fails = [LogUnreachable("away"), LogUnreachable("away")]
    assert isinstance(copies.ask(readers, 4, copies.seen("old", 4)), WasOther)
    assert readers.problem == ""


def test_also_where_the_reader_is_already_at_that_place_by_its_own_history(copies: Copies) -> None:
    readers, witness = copies.open("other"), copies.seen("old", 4)
    first = copies.ask(readers, 0, rows=4)
    mine = Witness(first.upto, first.mark)
    assert isinstance(first, WasRead) and first.upto == Position(4)
    found = copies.ask(readers, 4, mine, witness)
    assert isinstance(found, WasOther) and found.seen == witness
    assert isinstance(copies.ask(readers, 4, mine), WasRead), "who came by this history goes on"


@pytest.mark.parametrize("ahead", [4, 5])
def test_who_got_on_ahead_is_compared_on_the_way_also_in_what_was_read_before(
    copies: Copies, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_logs, "_AHEAD_BYTES", 1)  # so that the next read is done already
    readers, witness = copies.open("other"), copies.seen("old", ahead)
    start = copies.seen("old", 1)
    first = copies.ask(readers, 1, start, rows=1)
    assert isinstance(first, WasRead)
    second = copies.ask(readers, 2, Witness(first.upto, first.mark), witness)
    assert isinstance(second, WasOther) and second.seen == witness
    right = copies.ask(copies.open("old"), 1, start, witness)
    assert isinstance(right, WasRead) and right.upto == Position(6)


def test_an_update_where_there_was_none_is_of_another_history(copies: Copies) -> None:
    """For example because the transactions between were of other databases, and are others now."""
    readers, last = copies.open("old"), copies.seen("old", 3)
    witness = Witness(Position(5), last.mark)
    found = copies.ask(readers, 5, witness)
    assert isinstance(found, WasOther) and found.seen == witness
    assert "an update at 4:0, where there was none between 3:0 and 5:0" in found.reason
    assert isinstance(copies.ask(copies.open("old"), 2, witness), WasOther), "also on the way"


def test_what_lies_between_the_last_that_is_known_and_the_place_was_had(copies: Copies) -> None:
    found = copies.ask(copies.open("old"), 5, copies.seen("old", 3))
    assert isinstance(found, WasRead) and found.batch is not None
    assert positions_in(found.batch) == [Position(6)]


def test_of_two_who_contradict_each_other_at_one_place_the_log_tells(copies: Copies) -> None:
    old, other = copies.seen("old", 4), copies.seen("other", 4)
    for name, wrong in (("old", other), ("other", old)):
        found = copies.ask(copies.open(name), 4, old, other)
        assert isinstance(found, WasOther) and found.seen == wrong


def test_where_the_log_no_longer_has_it_nothing_is_compared(copies: Copies) -> None:
    copies.write("purged", OTHER, purged=4)
    found = copies.ask(copies.open("purged"), 4, copies.seen("old", 4))
    assert isinstance(found, WasRead) and found.upto == Position(6)
    lost = copies.ask(copies.open("purged"), 3, copies.seen("old", 2))
    assert isinstance(lost, WasLost) and (lost.after, lost.upto) == (Position(3), Position(4))


def test_long_keys_are_known_again_by_a_digest(copies: Copies) -> None:
    long = b"k" * 5_000
    copies.write("one", {1: long + b"1", 2: b"b"})
    copies.write("two", {1: long + b"2", 2: b"b"})
    witness = copies.seen("one", 1)
    assert len(witness.mark) < 300
    assert isinstance(copies.ask(copies.open("one"), 1, witness), WasRead)
    assert isinstance(copies.ask(copies.open("two"), 1, witness), WasOther)
