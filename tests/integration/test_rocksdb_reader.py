"""A RocksDB in another process that writes, flushes and is killed, and the map that is rebuilt from its
log."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.publishing import KEPT
from tests.servers.rocksdb import RocksProcess, rocks_process

from qanat.capture import LogReader, Lost, Op, Updates
from qanat.capture.url import check, open_reader
from qanat.events.position import Position

Operation = tuple[Any, ...]
DEADLINE_S = 300


class Rebuilt:
    """What the updates make, and the position up to which they were taken."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, bytes], bytes] = {}
        self.position = Position(0, 0)
        self.count = 0

    def take(self, updates: Updates) -> None:
        for update in updates.rows():
            assert update.position > self.position
            self.position = update.position
            self.count += 1
            family = update.table.name
            if update.op == Op.PUT:
                assert update.after is not None
                self.rows[family, update.after["key"]] = update.after["value"]
            elif update.op == Op.DELETE:
                assert update.before is not None
                self.rows.pop((family, update.before["key"]), None)
            else:
                assert update.op == Op.DELETE_RANGE and update.before is not None and update.after is not None
                first, end = update.before["key"], update.after["key"]
                for name, key in list(self.rows):
                    if name == family and first <= key < end:
                        del self.rows[name, key]


def transactions(seeded: random.Random, families: list[str], count: int) -> list[list[Operation]]:
    def key() -> bytes:
        return b"%03d" % seeded.randrange(200)

    def operation() -> Operation:
        family = seeded.choice(families)
        kind = seeded.choices(["put", "delete", "delete_range"], [12, 3, 1])[0]
        if kind == "put":
            size = seeded.choice([0, 1, 10, 100, 127, 128, 3000, 33_000])
            return ("put", family, key(), seeded.randbytes(size))
        if kind == "delete":
            return ("delete", family, key())
        first, end = sorted((key(), key()))
        return ("delete_range", family, first, end)

    return [[operation() for _ in range(seeded.choice([1, 1, 1, 2, 5, 30]))] for _ in range(count)]


def read_some(log: LogReader, rebuilt: Rebuilt, limit: int) -> int:
    answer = log.read(limit)
    assert isinstance(answer, Updates)
    rebuilt.take(answer)
    return len(answer)


def read_all(log: LogReader, rebuilt: Rebuilt) -> None:
    while read_some(log, rebuilt, 1000):
        pass


@pytest.mark.paper("W1")
@pytest.mark.parametrize("seed", [1, 2])
def test_the_map_is_rebuilt_across_fifty_resumes_and_kills_of_the_writer(
    rocks: RocksProcess, seed: int
) -> None:
    seeded = random.Random(seed)
    families = ["default"]
    rebuilt = Rebuilt()
    resumes = 0
    for round_number in range(20):
        if round_number in (3, 9):
            families.append(f"family{round_number}")
            rocks.do("family", families[-1])
        rocks.do("write", transactions(seeded, families, 8))
        if seeded.random() < 0.4:
            rocks.do("flush")
        if round_number % 7 == 5:
            rocks.send("write", transactions(seeded, families, 400))
            log = open_reader(rocks.url)
            log.seek(rebuilt.position)
            read_some(log, rebuilt, 50)
            log.close()
            rocks.kill()
            rocks.start()
        for _ in range(3):
            log = open_reader(rocks.url)
            log.seek(rebuilt.position)
            for _ in range(seeded.randrange(4)):
                read_some(log, rebuilt, seeded.choice([1, 3, 20]))
            log.close()
            resumes += 1
    log = open_reader(rocks.url)
    log.seek(rebuilt.position)
    read_all(log, rebuilt)
    assert resumes >= 50
    assert rebuilt.rows == rocks.do("rows")
    assert log.latest() == rebuilt.position
    log.seek("earliest")
    again = Rebuilt()
    read_all(log, again)
    assert (again.rows, again.count) == (rebuilt.rows, rebuilt.count)
    log.close()


def test_a_reader_follows_while_the_log_goes_from_file_to_file(rocks: RocksProcess) -> None:
    seeded = random.Random(5)
    log = open_reader(rocks.url)
    rebuilt = Rebuilt()
    last = 0
    deadline = time.monotonic() + DEADLINE_S
    for _ in range(6):
        rocks.send("write", transactions(seeded, ["default"], 300))
        answer = log.read(100, wait_s=10)
        assert isinstance(answer, Updates) and answer
        rebuilt.take(answer)
        last = rocks.receive()
        rocks.do("flush")
    while rebuilt.position.sequence + rebuilt.position.index < last:
        assert time.monotonic() < deadline
        read_some(log, rebuilt, 5000)
    assert rebuilt.rows == rocks.do("rows")
    rocks.do("close")
    log.close()


@pytest.mark.paper("W13")
def test_deleted_log_files_are_told_with_the_range(tmp_path: Path) -> None:
    with rocks_process(tmp_path / "shop") as rocks:
        log = open_reader(rocks.url)
        rocks.do("write", [[("put", "default", b"k%d" % n, b"v")] for n in range(10)])
        assert len(log.read(4)) == 4
        log.seek(Position(4, 0))
        rocks.do("flush")
        rocks.do("write", [[("put", "default", b"last", b"v")]])
        rocks.do("flush")
        last = rocks.do("write", [[("put", "default", b"last", b"w"), ("delete", "default", b"k1")]])
        lost = log.read(100)
        assert isinstance(lost, Lost) and lost.after == Position(4, 0)
        oldest = log.oldest()
        assert lost.upto == oldest and oldest.sequence in (10, 11)
        answer = log.read(100)
        assert isinstance(answer, Updates) and len(answer) == last - oldest.sequence
        assert not all(finding.ok for finding in check(rocks.url))
        log.close()


@pytest.mark.paper("W13")
def test_recycled_log_files_never_give_what_is_not_theirs(tmp_path: Path) -> None:
    seeded = random.Random(11)
    with rocks_process(tmp_path / "shop", recycle_log_file_num=2) as rocks:
        log, late = open_reader(rocks.url), open_reader(rocks.url)
        rebuilt = Rebuilt()
        for _ in range(12):
            rocks.do("write", transactions(seeded, ["default"], 20))
            read_all(log, rebuilt)
            rocks.do("flush")
        assert rebuilt.rows == rocks.do("rows")
        assert "recycle_log_file_num = 0" in " ".join(finding.fix for finding in check(rocks.url))
        late.seek(Position(1, 0))
        lost = late.read(10)
        assert isinstance(lost, Lost) and lost.after == Position(1, 0)
        assert lost.upto == late.oldest() or lost.upto == late.latest()
        log.close()
        late.close()


def test_what_was_written_without_the_log_is_told(rocks: RocksProcess) -> None:
    log = open_reader(rocks.url)
    rocks.do("write", [[("put", "default", b"a", b"1")]])
    rocks.do("unlogged", b"b", b"2")
    rocks.do("write", [[("put", "default", b"c", b"3")]])
    assert len(log.read(10)) == 1
    lost = log.read(10)
    assert (
        isinstance(lost, Lost)
        and lost[:2] == (Position(1, 0), Position(2, 0))
        and "disableWAL" in lost.reason
    )
    assert len(log.read(10)) == 1
    log.close()


def test_entries_of_a_dropped_column_family_keep_its_name(rocks: RocksProcess) -> None:
    rocks.do("family", "prices")
    rocks.do("write", [[("put", "prices", b"a", b"1")]])
    rocks.do("drop", "prices")
    log = open_reader(rocks.url)
    log.seek("earliest")
    answer = log.read(10)
    assert isinstance(answer, Updates)
    assert [update.table.path for update in answer.rows()] == ["shop.prices"]
    log.close()


def test_a_log_that_the_database_compresses_is_read(rocks: RocksProcess) -> None:
    rocks.do("close")
    rocks.kill()
    for options in rocks.folder.glob("OPTIONS-*"):
        text = options.read_text()
        options.write_text(text.replace("wal_compression=kNoCompression", "wal_compression=kZSTD"))
    rocks.start(loaded=1)
    seeded = random.Random(3)
    rocks.do("write", transactions(seeded, ["default"], 60))
    rocks.do("write", [[("put", "default", b"long", b"v" * 300_000 + seeded.randbytes(100_000))]])
    (newest,) = sorted(rocks.folder.glob("*.log"))[-1:]
    assert newest.read_bytes()[6] == 9
    log = open_reader(rocks.url)
    log.seek("earliest")
    rebuilt = Rebuilt()
    read_all(log, rebuilt)
    assert rebuilt.rows == rocks.do("rows")
    assert all(finding.ok for finding in check(rocks.url))
    log.close()


@pytest.mark.parametrize("cut", [1, 40, 150])
def test_a_tail_that_a_crash_has_torn_is_neither_read_nor_missed(rocks: RocksProcess, cut: int) -> None:
    rocks.do("write", [[("put", "default", b"k%d" % n, b"v" * 50)] for n in range(10)])
    rocks.kill()
    (newest,) = sorted(rocks.folder.glob("*.log"))[-1:]
    os.truncate(newest, newest.stat().st_size - cut)
    log = open_reader(rocks.url)
    log.seek("earliest")
    rebuilt = Rebuilt()
    read_all(log, rebuilt)
    assert 7 <= rebuilt.count < 10
    rocks.start()
    rocks.do("write", [[("put", "default", b"new", b"1")]])
    read_all(log, rebuilt)
    assert rebuilt.rows == rocks.do("rows")
    log.close()


def test_a_disk_that_is_full_at_the_writer_costs_the_reader_nothing(rocks: RocksProcess) -> None:
    seeded = random.Random(4)
    log = open_reader(rocks.url)
    rebuilt = Rebuilt()
    rocks.do("write", transactions(seeded, ["default"], 5))
    assert rocks.do("write_until_full", 400_000, transactions(seeded, ["default"], 300))
    read_all(log, rebuilt)
    assert rebuilt.count
    rocks.kill()
    rocks.start()
    rocks.do("write", transactions(seeded, ["default"], 20))
    read_all(log, rebuilt)
    assert rebuilt.rows == rocks.do("rows")
    log.close()


def test_a_replica_with_the_same_batches_has_the_same_positions_in_other_files(tmp_path: Path) -> None:
    seeded = random.Random(8)
    with (
        rocks_process(tmp_path / "one" / "shop", **KEPT) as one,
        rocks_process(tmp_path / "two" / "shop", **KEPT) as two,
    ):
        for number in range(6):
            batches = transactions(seeded, ["default"], 10)
            one.do("write", batches)
            two.do("write", batches)
            (one if number % 2 else two).do("flush")
            if number == 3:
                two.kill()
                two.start()
        first, second = open_reader(one.url, dataset="shop"), open_reader(two.url, dataset="shop")
        assert first.source == second.source == "shop"
        assert sorted(path.name for path in one.folder.rglob("*.log")) != sorted(
            path.name for path in two.folder.rglob("*.log")
        )
        rebuilt = Rebuilt()
        first.seek("earliest")
        for turn in range(1000):
            log = (first, second)[turn % 2]
            log.seek(rebuilt.position)
            if not read_some(log, rebuilt, 7):
                break
        assert rebuilt.rows == one.do("rows") == two.do("rows")
        assert rebuilt.position == first.latest() == second.latest()
        first.close()
        second.close()
