"""Readers of a publisher's log: what one read brings, cut to fit; logs that are behind, away, or
another's."""

from __future__ import annotations

import asyncio
import queue
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.servers.rocksdb import batch, database, log_file, put, write_log
from tests.waiting import until, wait_until

from qanat.capture import LogReader, Lost, Updates
from qanat.capture.errors import LogUnreachable
from qanat.capture.sharding import Sharding
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run
from qanat.checks.publisher_log import positions_in
from qanat.events.errors import LocalError, RemoteError
from qanat.events.position import Position
from qanat.protocols.publisher.reading import Locate, Located, Measured, ReadLog, WasLost, WasRead
from qanat.publisher import logs as publisher_logs
from qanat.publisher import node as publisher
from qanat.publisher.admin import PublisherAdmin
from qanat.publisher.logs import Readers, pieces_of
from qanat.publisher.node import PublisherNode
from qanat.publisher.settings import ApplicationSettings, PublisherSettings
from qanat.runtime.config import load

TABLE = Table("shop", "", "t", (Column("k", pa.int64(), key=True), Column("v", pa.binary())))


def updates(*sizes: int, first: int = 1) -> Updates:
    count = len(sizes)
    after = pa.RecordBatch.from_arrays(
        [pa.array(range(count), pa.int64()), pa.array([bytes(size) for size in sizes], pa.binary())],
        schema=TABLE.arrow,
    )
    run = Run(
        TABLE,
        np.full(count, Op.INSERT, np.uint8),
        np.arange(first, first + count, dtype=np.uint64),
        np.zeros(count, np.uint32),
        np.arange(count, dtype=np.int64) * 1000,
        pa.array([""] * count).dictionary_encode(),
        after,
    )
    return Updates([run])


def test_what_a_read_brings_is_cut_into_batches_that_fit() -> None:
    found = pieces_of(updates(10, 400, 400, 10, 10), Position(0), Sharding(), "log", 1200)
    assert len(found) > 1
    assert [piece.after for piece in found] == [Position(0), *(piece.upto for piece in found[:-1])]
    rows = [position for piece in found if piece.batch is not None for position in positions_in(piece.batch)]
    assert rows == [Position(number) for number in range(1, 6)]
    times = [time for piece in found if piece.batch is not None for time in piece.batch.times().tolist()]
    assert times == [0, 1000, 2000, 3000, 4000]


@pytest.mark.paper("W13")
def test_an_update_that_no_message_carries_is_told_as_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_logs, "FRAME_LIMIT", publisher_logs._ROOM + 2_000)
    found = pieces_of(updates(10, 5_000, 10), Position(0), Sharding(), "log", 1000)
    assert [bool(piece.lost) for piece in found] == [False, True, False]
    assert (found[1].after, found[1].upto) == (Position(1), Position(2))
    assert "more than one message carries" in found[1].lost
    assert not found[1].cut, "the log has it"


def test_a_read_that_passed_over_other_things_says_how_far_it_is() -> None:
    (piece,) = pieces_of(Updates([], Position(9)), Position(4), Sharding(), "log", 1000)
    assert (piece.upto, piece.batch) == (Position(9), None)
    assert pieces_of(Updates([], Position(4)), Position(4), Sharding(), "log", 1000) == []


class FakeLog:
    """A log that does as it is told."""

    source, identified = "log", True

    def __init__(self) -> None:
        self.newest = Position(5)
        self.sought: list[object] = []
        self.answers: list[Any] = []
        self.closed = 0

    def seek(self, start: object) -> None:
        self.sought.append(start)

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        answer = self.answers.pop(0) if self.answers else Updates()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def oldest(self) -> Position:
        return Position(1)

    def latest(self) -> Position:
        return self.newest

    def close(self) -> None:
        self.closed += 1


class SlowLog(FakeLog):
    """Reads wait until there are `free` ones."""

    free, waiting = 0, False

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        self.waiting = True
        wait_until(lambda: self.free > 0)
        self.waiting, self.free = False, self.free - 1
        return super().read(limit, wait_s)


class AwayLog(FakeLog):
    """Says nothing of itself until it is there."""

    asked, there = 0, False

    def latest(self) -> Position:
        self.asked += 1
        if not self.there:
            raise RemoteError("the datastore is away")
        return super().latest()


class SlotLog(FakeLog):
    """One that waits to be told what is done with."""

    def __init__(self) -> None:
        super().__init__()
        self.told: queue.SimpleQueue[tuple[str, Position]] = queue.SimpleQueue()

    def acknowledge(self, position: Position, resume: Position | None = None) -> None:
        self.told.put(("acknowledged", position))

    def advance(self, position: Position) -> None:
        self.told.put(("advanced", position))


class Bench:
    def __init__(self, fake: FakeLog) -> None:
        self.told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        opened: LogReader = fake
        self.readers = Readers(lambda: opened, Sharding(), 1 << 20, self.told.put)

    def ask(self, after: int) -> Any:
        self.readers.read(ReadLog(1, Position(after), 10))
        return self.told.get(timeout=300)


def test_a_slot_is_told_what_is_done_with_by_its_reader_or_else_without_one() -> None:
    fake = SlotLog()
    bench = Bench(fake)
    bench.readers.acknowledge(Position(2))
    assert fake.told.get(timeout=300) == ("advanced", Position(2))
    assert bench.ask(0).upto == Position(0)
    bench.readers.acknowledge(Position(3))
    assert bench.ask(0).upto == Position(0)
    assert fake.told.get(timeout=300) == ("acknowledged", Position(3))
    bench.readers.close_one(1)
    bench.readers.acknowledge(Position(4))
    assert fake.told.get(timeout=300) == ("advanced", Position(4))
    bench.readers.close()
    assert fake.told.empty()


def test_reads_go_on_where_they_were_without_another_seek() -> None:
    fake = FakeLog()
    bench = Bench(fake)
    fake.answers = [updates(1, 1), updates(1, first=3), Lost(Position(3), Position(4), "cut")]
    first, second, third = bench.ask(0), bench.ask(2), bench.ask(3)
    assert isinstance(first, WasRead) and isinstance(second, WasRead)
    assert (first.upto, second.upto) == (Position(2), Position(3))
    assert third == WasLost(1, Position(3), Position(4), "cut")
    assert bench.ask(1).upto == Position(1)
    assert fake.sought == [Position(0), Position(1)]
    bench.readers.locate(Locate("cache", "earliest"))
    assert bench.told.get(timeout=300) == Located("cache", "earliest", Position(1))
    bench.readers.measure()
    assert bench.told.get(timeout=300) == Measured(Position(1), Position(5))
    bench.readers.close_one(1)
    bench.readers.close()
    assert fake.closed == 2


def test_a_read_has_the_columns_that_were_asked_for_also_if_others_were_read_ahead() -> None:
    fake = FakeLog()
    bench = Bench(fake)
    fake.newest = Position(9)
    fake.answers = [updates(200_000), updates(200_000, first=2)]

    def ask(after: int, columns: tuple[str, ...] | None) -> set[str]:
        bench.readers.read(ReadLog(1, Position(after), 10, columns=columns))
        found = bench.told.get(timeout=300)
        assert found.columns == columns
        return {name for name in found.batch.attributes() if not name.startswith("#")}

    assert ask(0, ()) == set()
    wait_until(lambda: not fake.answers)
    fake.answers = [updates(5, first=2)]
    assert ask(1, ("v", "other")) == {"v"}
    assert fake.sought == [Position(0), Position(1)]
    fake.answers = [updates(5, first=3)]
    assert ask(2, None) == {"k", "v"}
    bench.readers.close()


def test_while_much_is_sent_the_next_is_read_already_and_what_fails_then_is_met_again() -> None:
    fake = FakeLog()
    bench = Bench(fake)
    fake.newest = Position(9)
    fake.answers = [updates(200_000), updates(200_000, first=2), LogUnreachable("away"), updates(1, first=3)]
    assert bench.ask(0).upto == Position(1)
    wait_until(lambda: len(fake.answers) == 1)
    assert bench.ask(1).upto == Position(2)
    assert bench.readers.problem == ""
    assert bench.ask(2).upto == Position(3)
    assert fake.sought == [Position(0), Position(2)]
    bench.readers.close()


def test_what_is_ready_is_given_while_the_next_is_read_and_no_more_is_kept_ready_than_some() -> None:
    fake = SlowLog()
    bench = Bench(fake)
    fake.newest = Position(99)
    fake.answers = [updates(200_000, first=number) for number in range(1, 20)]
    fake.free = 2
    assert bench.ask(0).upto == Position(1)
    wait_until(lambda: fake.waiting and len(fake.answers) == 17)  # the second is ready, the third on its way
    assert bench.ask(1).upto == Position(2)
    fake.free = 100
    assert bench.ask(2).upto == Position(3)
    wait_until(lambda: len(fake.answers) == 19 - 3 - publisher_logs._READY)
    assert bench.ask(3).upto == Position(4)
    wait_until(lambda: len(fake.answers) == 19 - 4 - publisher_logs._READY)
    assert fake.sought == [Position(0)]
    bench.readers.close()


def test_of_large_batches_fewer_are_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_logs, "_READY_BYTES", 500_000)
    fake = SlowLog()
    bench = Bench(fake)
    fake.newest, fake.free = Position(99), 100
    fake.answers = [updates(200_000, first=number) for number in range(1, 20)]
    assert bench.ask(0).upto == Position(1)
    wait_until(lambda: len(fake.answers) == 19 - 1 - 2 and not bench.readers._threads[1]._is_ahead)
    assert bench.ask(1).upto == Position(2)
    wait_until(lambda: len(fake.answers) == 19 - 2 - 2 and not bench.readers._threads[1]._is_ahead)
    bench.readers.close()


def test_no_question_for_a_beginning_is_dropped_while_the_log_is_away() -> None:
    """Nobody asks it a second time; where the log ends is asked again and again."""
    fake = AwayLog()
    bench = Bench(fake)
    for name in ("one", "two", "three"):
        bench.readers.locate(Locate(name, "latest"))
    bench.readers.measure()
    wait_until(lambda: fake.asked > 3)
    fake.there = True
    found: set[str] = set()
    while len(found) < 3:
        answer = bench.told.get(timeout=300)
        if isinstance(answer, Located):
            found.add(answer.application)
    bench.readers.close()
    assert found == {"one", "two", "three"}


@pytest.mark.paper("W10")
def test_a_copy_whose_log_is_behind_the_datamarker_waits_for_it() -> None:
    fake = FakeLog()
    bench = Bench(fake)
    bench.readers.read(ReadLog(1, Position(9), 10))
    wait_until(lambda: "before the datamarker 9:0" in bench.readers.problem)
    assert fake.sought == []
    fake.newest, fake.answers = Position(9), [updates(1, first=10)]
    assert bench.told.get(timeout=300).upto == Position(10)
    assert bench.readers.problem == ""
    bench.readers.close()


def test_a_log_that_is_away_is_asked_again_until_it_answers() -> None:
    fake = FakeLog()
    bench = Bench(fake)
    fake.answers = [LogUnreachable("away"), LogUnreachable("away"), ValueError("a fault of ours"), updates(1)]
    assert bench.ask(0).upto == Position(1)
    bench.readers.close()


def test_datamarkers_of_another_dataset_are_not_used(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_log(database(tmp_path / name), 3, log_file([batch(1, put(b"k", b"v"))]))

    async def start(name: str) -> None:
        flags = {
            "node.data": str(tmp_path / "data"),
            "node.listen": "127.0.0.1:0",
            "admin.enabled": False,
            "log.url": f"rocksdb://{tmp_path / name}?dataset={name}",
        }
        node = PublisherNode(partial(load, PublisherSettings, flags=flags))
        await node.on_start()
        await node.on_stop()

    asyncio.run(start("one"))
    asyncio.run(start("one"))
    with pytest.raises(LocalError, match=r"are of 'one', and log.url leads to 'two'"):
        asyncio.run(start("two"))


def test_datamarkers_of_other_shards_are_not_used(tmp_path: Path) -> None:
    """What was behind in shard 7 of 8 may be before the datamarker of shard 3 of 4: it would be passed
    over."""
    write_log(database(tmp_path / "log"), 3, log_file([batch(1, put(b"k", b"v"))]))

    async def start(sharding: str, folder: str = "data", parts: int = 1) -> None:
        flags = {
            "node.data": str(tmp_path / folder),
            "node.listen": "127.0.0.1:0",
            "admin.enabled": False,
            "log.url": f"rocksdb://{tmp_path / 'log'}?dataset=d",
            "log.sharding": sharding,
            "publisher.parts": parts,
        }
        node = PublisherNode(partial(load, PublisherSettings, flags=flags))
        await node.on_start()
        await node.on_stop()

    with pytest.raises(LocalError, match="write the number of shards after hash:"):
        asyncio.run(start("hash:abc", "none"))
    assert not (tmp_path / "none" / "dataset").exists()
    asyncio.run(start("hash:8"))
    asyncio.run(start("hash:08"))
    with pytest.raises(LocalError, match=r"shards by 'hash:8', and log.sharding is 'hash:4'"):
        asyncio.run(start("hash:4"))
    asyncio.run(start("hash:8", "parts"))
    with pytest.raises(LocalError, match=r"of '1' parts, and publisher.parts is '2': give this publisher"):
        asyncio.run(start("hash:8", "parts", parts=2))


@pytest.mark.paper("W6")
def test_another_number_of_parts_waits_for_a_restart_and_does_not_stand_in_the_way_of_operators(
    tmp_path: Path,
) -> None:
    write_log(database(tmp_path / "log"), 3, log_file([batch(1, put(b"k", b"v"))]))
    settings = tmp_path / "publisher.toml"
    flags = {
        "node.data": str(tmp_path / "data"),
        "node.listen": "127.0.0.1:0",
        "admin.enabled": False,
        "log.url": f"rocksdb://{tmp_path / 'log'}?dataset=d",
    }

    async def run() -> None:
        settings.write_text("[publisher]\nparts = 2\n")
        node = PublisherNode(partial(load, PublisherSettings, file=settings, flags=flags))
        await node.on_start()
        settings.write_text("[publisher]\nparts = 3\nread_rows = 7\n")
        node._reload()
        assert (node.settings.publisher.parts, node.settings.publisher.read_rows) == (2, 7)
        admin = PublisherAdmin(node)
        admin.change_limits({"settings": ["near=9"]})
        assert node.settings.publisher.near == 9
        with pytest.raises(LocalError, match="parts stays as it was"):
            admin.change_limits({"settings": ["parts=3"]})
        await node.on_stop()

    asyncio.run(run())


@pytest.mark.paper("W12")
def test_who_tolerates_staleness_gets_it_compressed() -> None:
    assert ApplicationSettings(tolerates_ms=1000).codec == "zstd"
    assert ApplicationSettings().codec == ""
    assert ApplicationSettings(compression="lz4").codec == "lz4"
    with pytest.raises(LocalError, match=r"does not fit together.*'a/b' is no valid name"):
        load(PublisherSettings, flags={"applications": {"a/b": {}}})


@pytest.mark.paper("W4")
def test_a_slot_is_told_what_is_marked_when_that_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, disk, settings = SlotLog(), threading.Event(), tmp_path / "publisher.toml"
    monkeypatch.setattr(publisher, "open_reader", lambda url: fake)
    monkeypatch.setattr(publisher, "_LOOK_S", 0.01)
    flags = {
        "node.data": str(tmp_path / "data"),
        "node.listen": "127.0.0.1:0",
        "admin.enabled": False,
        "log.url": "postgres://me@127.0.0.1/shop",
    }

    async def run() -> None:
        settings.touch()
        node = PublisherNode(partial(load, PublisherSettings, file=settings, flags=flags))
        await node.on_start()
        assert node.machine is not None
        node.driver.disk.submit(disk.wait)
        settings.write_text('[applications.cache]\nstart = "3:0"\n')
        node._reload()
        asked = node.machine.counts["Settle"]
        try:
            await until(lambda: node.machine is not None and node.machine.counts["Settle"] > asked + 3)
            assert list(node.machine.served["cache"].scouts) == [0] and fake.told.empty()
        finally:
            disk.set()
        await until(lambda: not fake.told.empty())
        await node.on_stop()

    asyncio.run(run())
    assert fake.told.get() == ("advanced", Position(3))
