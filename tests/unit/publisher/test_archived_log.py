"""A log that goes on in an archive: histories with everything in them that can be in a stream, compared with
what was written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qanat.capture.events import Events, events_of
from qanat.capture.losses import is_loss, loss_event
from qanat.capture.reader import LogReader, Lost, Start
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run, Update, Updates
from qanat.events.batch import Batch, stream_id
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.events.tombstones import tombstone
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import DataFile, Range
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.columns import ARROW, arrow_of
from qanat.publisher.archived_log import AcknowledgingLog, ArchivedLog, with_archive
from qanat.publisher.archived_positions import ArchivedPositions, before

TABLE = Table("shop", "", "t", (Column("k", pa.int64(), key=True), Column("v", pa.string())))
STREAM = stream_id("s")


def update(position: Position) -> Updates:
    run = Run(
        TABLE,
        np.array([Op.INSERT], np.uint8),
        np.array([position.sequence], np.uint64),
        np.array([position.index], np.uint32),
        np.array([position.sequence * 1000], np.int64),
        pa.array([f"0-1-{position.sequence}"]).dictionary_encode(),
        pa.RecordBatch.from_arrays([pa.array([position.sequence]), pa.array(["x"])], schema=TABLE.arrow),
    )
    return Updates([run])


def event(events: Events, source: str, first: int) -> Batch:
    return Batch.build(
        STREAM,
        events.payloads,
        keys=events.keys,
        attributes=events.attributes,
        source=source,
        positions=(events.sequences, events.indexes),
        first=first,
        time_us=1,
    )


class Kept(LogReader):
    """A log that has what is after `cut`."""

    source, identified = "shop", True

    def __init__(self, positions: list[Position], cut: int) -> None:
        self._all, self._cut, self._at = positions, cut, Position(0)

    def seek(self, start: Start) -> None:
        assert isinstance(start, Position)
        self._at = start

    def oldest(self) -> Position:
        return self._all[self._cut - 1] if self._cut else Position(0)

    def latest(self) -> Position:
        return self._all[-1]

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        after = self._at
        if after < self.oldest():
            self._at = self.oldest()
            return Lost(after, self._at, "cut")
        found = [position for position in self._all[self._cut :] if position > after][:limit]
        self._at = found[-1] if found else after
        return Updates([run for position in found for run in update(position).runs])

    def close(self) -> None:
        pass


class Archived:
    """The archive of a stream, file by file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.history = folder, History(LocalStorage(str(folder)), "s")
        self._writer = self.history.begin("append")
        self._rows: list[pa.RecordBatch] = []
        self.first = self.next = 1

    def add(self, batch: Batch) -> None:
        self._rows.append(arrow_of("s", batch))
        self.next = batch.last + 1

    def lose(self, count: int) -> None:
        self.end_file()
        self._writer.append(lost=[Range(self.next, self.next + count - 1)])
        self.next = self.first = self.next + count

    def end_file(self, rows: int = 1000) -> None:
        if not self._rows:
            return
        path = self._writer.path("2026-01-01", self.first, self.next - 1)
        target = Path(self.history.storage.root) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches(self._rows, ARROW)
        pq.write_table(table, target, row_group_size=rows)
        file = DataFile(
            path=path,
            first=self.first,
            last=self.next - 1,
            rows=table.num_rows,
            bytes=target.stat().st_size,
            checksum="crc32c:0",
            min_time_us=1,
            max_time_us=1,
        )
        self._writer.append([file])
        self._rows, self.first = [], self.next

    @property
    def positions(self) -> ArchivedPositions:
        return ArchivedPositions(str(self.folder), "s", "shop")


def read_all(reader: LogReader, after: Position, limit: int) -> list[Update | Lost]:
    found: list[Update | Lost] = []
    end = reader.latest()
    reader.seek(after)
    while after < end:
        part = reader.read(limit)
        assert part.upto is not None and part.upto >= after, "it always comes further"
        if isinstance(part, Lost):
            assert part.after == after, "where one ends, the next begins"
            found.append(part)
        else:
            assert len(part) <= limit
            found += list(part.rows())
        after = part.upto
    return found


@pytest.mark.paper("W13")
@pytest.mark.parametrize("seed", range(6))
def test_what_log_and_archive_have_comes_once_and_in_order_and_the_rest_is_told(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    archived, whole, kept = Archived(tmp_path), [Position(1)], set[Position]()
    while len(whole) < 60:
        last = whole[-1]
        step = rng.random() < 0.4
        whole.append(Position(last.sequence, last.index + 1) if step else Position(last.sequence + 1))
    fed_from, fed_to = rng.randrange(12), rng.randrange(30, 61)
    at = fed_from
    while at < fed_to:
        match rng.choices(("mine", "other", "bare", "gone", "loss", "hole", "file"), (30, 5, 5, 1, 1, 1, 4))[
            0
        ]:
            case "mine":
                archived.add(event(events_of(update(whole[at])), "shop", archived.next))
                kept.add(whole[at])
                at += 1
            case "other":  # the same positions, of another log
                some = update(whole[rng.randrange(60)])
                archived.add(event(events_of(some), rng.choice(("shop/snapshot", "mail")), archived.next))
            case "bare":
                archived.add(Batch.build(STREAM, [b"hello"], first=archived.next, time_us=1))
            case "gone":
                count = rng.randrange(1, 4)
                archived.add(tombstone(STREAM, archived.next, archived.next + count - 1, 1))
                at += rng.randrange(count + 1)
            case "loss":
                upto = min(fed_to, at + rng.randrange(1, 5))
                lost = Lost(before(whole[at]), whole[upto - 1], "purged")
                archived.add(event(loss_event(lost), "shop", archived.next))
                at = upto
            case "hole":
                count = rng.randrange(1, 4)
                archived.lose(count)
                at += rng.randrange(count + 1)
            case _:
                archived.end_file(rng.choice((2, 5, 1000)))
    archived.end_file()
    cut = rng.randrange(20, 60)
    log = ArchivedLog(Kept(whole, cut), archived.positions)
    for after in (Position(0), *rng.sample(whole[:-1], 4)):
        found = read_all(log, after, rng.choice((1, 3, 100)))
        rows = [each for each in found if not isinstance(each, Lost)]
        assert [row.position for row in rows] == [
            each for number, each in enumerate(whole) if each > after and (each in kept or number >= cut)
        ]
        for row in rows:
            assert row == next(update(row.position).rows())
        gone = [each for each in found if isinstance(each, Lost)]
        told = {each for each in whole for lost in gone if lost.after < each <= lost.upto}
        assert told == {each for each in whole if each > after} - {row.position for row in rows}
    oldest = log.oldest()
    later = [each for number, each in enumerate(whole) if each > oldest and number < cut]
    assert set(later) <= kept, "once it was read, what is wrong with it is known"


def test_an_archive_that_has_all_tells_no_loss_and_is_where_the_log_begins(tmp_path: Path) -> None:
    whole, archived = [Position(number) for number in range(1, 21)], Archived(tmp_path)
    for number, position in enumerate(whole[:15]):
        archived.add(event(events_of(update(position)), "shop", archived.next))
        if number % 4 == 3:
            archived.end_file()
    archived.end_file()
    log = ArchivedLog(Kept(whole, 12), archived.positions)
    assert log.oldest() == before(Position(1))
    for after in (Position(0), Position(3), Position(11)):
        found = read_all(log, after, 4)
        assert [each.position for each in found if not isinstance(each, Lost)] == whole[after.sequence :]
        assert len(found) == 20 - after.sequence
    behind = ArchivedLog(Kept(whole, 17), archived.positions)
    assert behind.oldest() == Position(17), "the archive does not reach to where the log begins"
    renamed = Kept([*whole[:15], Position(15, 1), *whole[16:]], 16)
    assert ArchivedLog(renamed, archived.positions).oldest() == Position(15, 1)
    (lost,) = [each for each in read_all(behind, Position(2), 4) if isinstance(each, Lost)]
    assert (lost.after, lost.upto) == (Position(15), Position(17))
    assert lost.reason == "cut; its archive ends at 15:0"


def test_a_file_that_is_replaced_while_it_is_read_is_read_where_it_is_now(tmp_path: Path) -> None:
    whole, archived = [Position(number) for number in range(1, 21)], Archived(tmp_path)
    for position in whole[:16]:
        archived.add(event(events_of(update(position)), "shop", archived.next))
        if position.sequence % 8 == 0:
            archived.end_file()
    log, other = (ArchivedLog(Kept(whole, 14), archived.positions) for _ in range(2))
    for each in (log, other):
        each.seek(Position(2))
        found = each.read(100)
        assert isinstance(found, Updates) and len(found) == 6  # of the first file
    history, old = archived.history, archived.history.newest().files[1]
    moved = f"{old.path.removesuffix('.parquet')}-0.parquet"
    root = Path(history.storage.root)
    (root / old.path).rename(root / moved)
    with pytest.raises(LocalError, match="is missing"):
        log.read(100)
    with history.begin("rewrite") as writer:
        path = writer.path("2026-01-01", old.first, old.last)
        (root / moved).rename(root / path)
        writer.replace([old.path], [DataFile(**{**_fields(old), "path": path, "generation": 1})])
    rest = read_all(log, Position(8), 100)
    assert [each.position for each in rest if not isinstance(each, Lost)] == whole[8:]
    goes_on = other.read(100)
    assert isinstance(goes_on, Updates) and [row.position for row in goes_on.rows()] == whole[8:14]


def _fields(file: DataFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in file.__struct_fields__}


def test_a_loss_beside_updates_in_one_batch_is_seen() -> None:
    events = events_of(update(Position(1)))
    lost = loss_event(Lost(Position(1), Position(3), "purged"))
    both = Batch.build(
        STREAM,
        [*events.payloads.to_pylist(), *lost.payloads.to_pylist()],
        attributes=[{"#op": "insert", "#columns": "[]"}, {"#op": "lost"}],
        first=1,
    )
    assert is_loss(both).tolist() == [False, True]


def test_a_datastore_that_waits_to_be_told_is_told(tmp_path: Path) -> None:
    class Slot(Kept):
        told: Position | None = None

        def acknowledge(self, position: Position, resume: Position | None = None) -> None:
            self.told = position

        def advance(self, position: Position) -> None:
            self.told = position

    slot = Slot([Position(1)], 0)
    log = with_archive(slot, Archived(tmp_path).positions)
    assert isinstance(log, AcknowledgingLog)
    log.acknowledge(Position(1))
    assert slot.told == Position(1)
    log.advance(Position(2))
    assert slot.told == Position(2)
    assert not isinstance(
        with_archive(Kept([Position(1)], 0), Archived(tmp_path).positions), AcknowledgingLog
    )


def test_reading_an_archive_needs_no_spark() -> None:
    code = "import sys, qanat.publisher.archived_log; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
