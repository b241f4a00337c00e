"""The reader on log files of the tests' own making: seeks, gaps, archives, recycled and damaged files,
two-phase commits."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import zstandard
from tests.servers.rocksdb import batch, commit, database, delete, log_file, prepared, put, write_log

from qanat.capture.errors import BadLogUrl, LogUnreachable, MalformedLog, NotSetUp
from qanat.capture.reader import LogReader, Lost
from qanat.capture.updates import Updates
from qanat.capture.url import check, open_reader
from qanat.events.errors import LocalError
from qanat.events.position import Position

FAMILIES = {1: "prices"}


def row(sequence: int) -> bytes:
    return batch(sequence, put(b"k%d" % sequence, b"v"))


def reader(folder: Path, **options: Any) -> LogReader:
    return open_reader(f"rocksdb://{folder}", **options)


def had(log: LogReader, limit: int = 1000) -> list[Position]:
    answer = log.read(limit)
    assert isinstance(answer, Updates)
    return [update.position for update in answer.rows()]


def everything(log: LogReader, limit: int = 3) -> list[Position | Lost]:
    found: list[Position | Lost] = []
    while True:
        answer = log.read(limit)
        if isinstance(answer, Lost):
            found.append(answer)
        elif answer:
            found += [update.position for update in answer.rows()]
        else:
            return found


def positions(*sequences: int) -> list[Position]:
    return [Position(sequence, 0) for sequence in sequences]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Batches 1 to 9 in three files, the first of them archived; the batch at 4 has three entries."""
    found = database(tmp_path / "shop", FAMILIES)
    (found / "archive").mkdir()
    write_log(found / "archive", 4, log_file([row(1), row(2), row(3)]))
    three = [put(b"a", b"1"), put(b"b", b"2", 1), delete(b"a")]
    write_log(found, 7, log_file([batch(4, *three), row(7)]))
    write_log(found, 12, log_file([row(8), row(9)]))
    write_log(found, 15, b"")
    return found


ALL = [*positions(1, 2, 3), Position(4, 0), Position(4, 1), Position(4, 2), *positions(7, 8, 9)]


@pytest.mark.paper("W1")
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_any_position_can_be_sought(folder: Path, limit: int) -> None:
    log = reader(folder)
    assert (log.source, log.oldest(), log.latest()) == ("rocksdb:shop", Position(0, 0), Position(9, 0))
    assert everything(log) == []
    for start, position in enumerate([Position(0, 0), *ALL]):
        log.seek(position)
        assert everything(log, limit) == ALL[start:]
    log.seek("earliest")
    assert everything(log, limit) == ALL
    log.close()


def test_names_of_tables_are_the_column_families(folder: Path) -> None:
    log = reader(folder, dataset="shops")
    log.seek(Position(3, 0))
    answer = log.read(3)
    assert isinstance(answer, Updates) and log.source == "shops"
    assert [update.table.path for update in answer.rows()] == ["shop.default", "shop.prices", "shop.default"]
    assert answer.upto == Position(4, 2)


def test_a_file_is_left_when_the_next_has_a_record_and_not_before(folder: Path) -> None:
    log = reader(folder)
    write_log(folder, 12, log_file([row(8), row(9), row(10)]))
    assert had(log) == positions(10)
    data = log_file([row(11), row(12)])
    write_log(folder, 15, data[:20])
    assert had(log) == []
    write_log(folder, 12, log_file([row(8), row(9), row(10), row(11)]))
    assert had(log) == positions(11)
    write_log(folder, 15, log_file([row(12), row(13)]))
    assert had(log) == positions(12, 13)


@pytest.mark.paper("W13")
def test_what_was_deleted_is_told_exactly(folder: Path) -> None:
    log = reader(folder)
    shutil.rmtree(folder / "archive")
    for seen in (Position(0, 0), Position(1, 0)):
        log.seek(seen)
        lost = log.read(10)
        assert isinstance(lost, Lost) and lost[:2] == (seen, Position(3, 0))
        assert f"sequence numbers {seen.sequence + 1} to 3 " in lost.reason and "deleted" in lost.reason
        assert everything(log) == ALL[3:]
    assert log.oldest() == Position(3, 0)
    log.seek(Position(3, 0))
    assert everything(log) == ALL[3:]
    os.remove(folder / "000007.log")
    log.seek(Position(4, 1))
    answers = everything(log)
    assert answers == [Lost(Position(4, 1), Position(7, 0), answers[0].reason), *positions(8, 9)]  # type: ignore[union-attr]
    log.seek(Position(4, 2))
    assert isinstance(log.read(10), Lost)
    log.seek(Position(7, 0))
    assert everything(log) == positions(8, 9)


@pytest.mark.paper("W13")
def test_a_file_in_the_middle_that_is_gone_is_told(folder: Path) -> None:
    os.remove(folder / "000007.log")
    log = reader(folder)
    log.seek("earliest")
    first, lost, *rest = everything(log, 100)[2:]
    assert first == Position(3, 0) and rest == positions(8, 9)
    assert isinstance(lost, Lost) and lost[:2] == (Position(3, 0), Position(7, 0))


def test_a_file_that_is_being_read_may_be_moved_or_deleted(folder: Path) -> None:
    log = reader(folder)
    log.seek(Position(3, 0))
    assert had(log, 1) == [Position(4, 0)]
    (folder / "000007.log").rename(folder / "archive" / "000007.log")
    assert had(log, 1) == [Position(4, 1)]
    shutil.rmtree(folder / "archive")
    assert everything(log) == ALL[5:]


@pytest.mark.paper("W13")
def test_when_all_was_flushed_and_deleted_the_manifest_tells_how_far(folder: Path) -> None:
    log = reader(folder)
    log.seek(Position(4, 0))
    shutil.rmtree(folder)
    database(folder, FAMILIES, last_sequence=30)
    assert log.oldest() == log.latest() == Position(30, 0)
    lost = log.read(10)
    assert isinstance(lost, Lost) and lost[:2] == (Position(4, 0), Position(30, 0))
    write_log(folder, 40, log_file([row(31)]))
    assert had(log) == positions(31)


def test_numbers_that_were_never_in_the_log_are_told_unless_one_asks_otherwise(folder: Path) -> None:
    write_log(folder, 15, log_file([row(10), row(20), row(21), row(25)]))
    log = reader(folder)
    log.seek(Position(9, 0))
    answers = everything(log)
    told = [answer for answer in answers if isinstance(answer, Lost)]
    assert [lost[:2] for lost in told] == [
        (Position(10, 0), Position(19, 0)),
        (Position(21, 0), Position(24, 0)),
    ]
    assert "disableWAL" in told[0].reason
    log.seek(Position(15, 0))
    assert everything(log)[1:3] == positions(20, 21)
    log = reader(folder, unlogged="ignore")
    log.seek(Position(9, 0))
    assert everything(log) == positions(10, 20, 21, 25)


def test_a_torn_tail_is_waited_for_and_after_a_crash_left_behind(folder: Path) -> None:
    data = log_file([row(10), row(11)])
    log = reader(folder)
    log.seek(Position(9, 0))
    for cut in range(len(data)):
        write_log(folder, 15, data[:cut])
        assert had(log) == (positions(10) if cut == len(data) // 2 else [])
    write_log(folder, 17, log_file([row(11), row(12)]))
    assert had(log) == positions(11, 12)


@pytest.mark.paper("W13")
def test_a_torn_tail_that_the_database_went_on_after_is_lost(folder: Path) -> None:
    write_log(folder, 15, log_file([row(10), row(11)])[:-1])
    write_log(folder, 17, log_file([row(12)]))
    log = reader(folder)
    log.seek(Position(9, 0))
    assert had(log) == positions(10)
    lost = log.read(10)
    assert isinstance(lost, Lost) and lost[:2] == (Position(10, 0), Position(11, 0))
    assert "breaks off" in lost.reason
    assert had(log) == positions(12)


def test_damage_stops_the_reader_there_and_nothing_is_skipped(folder: Path) -> None:
    good = log_file([row(10)])
    damaged = bytearray(log_file([row(10), row(11), row(12)]))
    damaged[len(good) + 12] ^= 1
    write_log(folder, 15, bytes(damaged))
    log = reader(folder)
    log.seek(Position(9, 0))
    assert had(log) == positions(10)
    for _ in range(2):
        with pytest.raises(MalformedLog, match=rf"000015.log, byte {len(good)}: .*checksum"):
            log.read(10)
    write_log(folder, 15, log_file([row(10), row(11), row(12)]))
    assert had(log) == positions(11, 12)


TIMED = b"\x18\x01a\x01b"
"""A put with a time of its own, which is not read."""


def without_the_unread(log: LogReader, limit: int) -> tuple[list[Position], list[MalformedLog]]:
    """All positions, and what had to be left out on the way."""
    found: list[Position] = []
    left_out: list[MalformedLog] = []
    while True:
        try:
            more = had(log, limit)
        except MalformedLog as error:
            assert error.resume is not None
            with pytest.raises(MalformedLog, match="to leave it out"):
                log.read(limit)  # as long as nobody seeks to behind it
            left_out.append(error)
            log.seek(error.resume)
            continue
        if not more:
            return found, left_out
        found += more


@pytest.mark.parametrize("limit", [1, 1000])
def test_a_batch_that_cannot_be_read_is_left_out_by_whoever_seeks_to_behind_it(
    folder: Path, limit: int
) -> None:
    bad = [batch(12, put(b"k", b"v"), TIMED), batch(14, b"\x7e"), batch(16, b"\x7e", count=5)]
    write_log(folder, 15, log_file([row(10), row(11), bad[0], bad[1], row(15), bad[2], row(17)]))
    write_log(folder, 17, log_file([row(18)]))
    log = reader(folder)
    assert log.latest() == Position(18, 0)
    log.seek(Position(9, 0))
    found, left_out = without_the_unread(log, limit)
    assert found == positions(10, 11, 15, 17, 18)
    assert [(one.position, one.resume, one.original) for one in left_out] == [
        (Position(12, 0), Position(12, 1), bad[0]),
        (Position(14, 0), Position(14, 0), bad[1]),
        (Position(16, 0), Position(16, 0), bad[2]),
    ]
    assert "000015.log" in str(left_out[0]) and "time of its own in it (tag 0x18)" in str(left_out[0])
    # Another reader that begins behind one of them has the rest, and nothing else.
    for resume, rest in ((Position(12, 1), (15, 17, 18)), (Position(14, 0), (15, 17, 18))):
        log = reader(folder)
        log.seek(resume)
        assert without_the_unread(log, limit)[0] == positions(*rest)


def test_a_newest_batch_that_cannot_be_read_is_where_the_log_ends(folder: Path) -> None:
    write_log(folder, 15, log_file([row(10), batch(11, TIMED, TIMED)]))
    log = reader(folder)
    assert log.latest() == Position(11, 1)
    write_log(folder, 15, log_file([row(10), batch(11, TIMED, TIMED), row(13)]))
    assert log.latest() == Position(13, 0)


def test_what_was_prepared_and_cannot_be_read_is_left_out_where_it_is_committed(folder: Path) -> None:
    bad = batch(10, prepared(b"tx", put(b"p", b"1"), TIMED), count=2)
    committed = batch(12, commit(b"tx"), count=0)
    write_log(folder, 15, log_file([bad, row(10), row(11), committed, row(14)]))
    for start, expected in ((9, (10, 11, 14)), (11, (14,))):
        log = reader(folder)
        log.seek(Position(start, 0))
        found, (left_out,) = without_the_unread(log, 1000)
        assert found == positions(*expected)
        assert (left_out.position, left_out.resume) == (Position(12, 0), Position(12, 1))
        assert left_out.original == bad + committed
        assert "transaction b'tx' was prepared with something" in str(left_out)


def test_what_is_missing_before_a_batch_that_cannot_be_read_is_told(folder: Path) -> None:
    write_log(folder, 15, log_file([row(10), batch(13, TIMED), row(14)]))
    log = reader(folder)
    log.seek(Position(9, 0))
    assert had(log) == positions(10)
    lost = log.read(10)
    assert isinstance(lost, Lost) and (lost.after, lost.upto) == (Position(10, 0), Position(12, 0))
    assert without_the_unread(log, 10)[0] == positions(14)


def test_sequence_numbers_that_go_back_are_refused(folder: Path) -> None:
    write_log(folder, 15, log_file([row(10), row(11)]))
    log = reader(folder)
    log.seek(Position(9, 0))
    assert had(log) == positions(10, 11)
    write_log(folder, 17, log_file([row(11)]))
    with pytest.raises(MalformedLog, match="go back from 12 to 11"):
        log.read(10)


def test_a_recycled_file_is_read_to_where_the_earlier_log_begins(folder: Path) -> None:
    old = log_file([row(10), row(11), row(12)], number=15)
    write_log(folder, 15, old)
    log = reader(folder)
    log.seek(Position(9, 0))
    assert had(log) == positions(10, 11, 12)
    (folder / "000015.log").rename(folder / "000019.log")
    write_log(folder, 19, log_file([row(13)], number=19, over=old))
    assert had(log) == positions(13)
    write_log(folder, 19, log_file([row(13), row(14)], number=19, over=old))
    assert had(log) == positions(14)


@pytest.mark.paper("W13")
def test_a_file_that_was_overwritten_before_it_was_read_is_lost(folder: Path) -> None:
    records = [row(n) for n in range(10, 3000)]
    write_log(folder, 15, log_file(records, number=15))
    log = reader(folder)
    log.seek(Position(9, 0))
    assert had(log, 1) == positions(10)
    log.seek(Position(10, 0))
    (folder / "000015.log").rename(folder / "000019.log")
    write_log(folder, 19, log_file([row(3000)], number=19, over=log_file(records, number=15)))
    lost = log.read(10)
    assert isinstance(lost, Lost) and lost[:2] == (Position(10, 0), Position(2999, 0))
    assert had(log) == positions(3000)


def test_a_compressed_log_is_read(folder: Path) -> None:
    frames = [zstandard.compress(each) for each in (row(10), batch(11, put(b"big", bytes(200_000))), row(12))]
    write_log(folder, 15, log_file(frames, compressed=True))
    log = reader(folder)
    assert log.latest() == Position(12, 0)
    log.seek(Position(9, 0))
    assert everything(log) == positions(10, 11, 12)


def test_a_batch_may_be_larger_than_what_is_read_at_once(folder: Path) -> None:
    write_log(folder, 15, log_file([row(10), batch(11, put(b"big", bytes(3_000_000))), row(12)]))
    log = reader(folder)
    log.seek(Position(9, 0))
    assert everything(log) == positions(10, 11, 12)


def test_a_commit_may_lie_in_a_later_file_than_what_was_prepared(folder: Path) -> None:
    write_log(
        folder, 15, log_file([batch(10, prepared(b"tx", put(b"p", b"1"), put(b"q", b"2")), count=2), row(10)])
    )
    write_log(folder, 17, log_file([row(11), batch(12, commit(b"tx"), count=0), row(14)]))
    expected = [*positions(10, 11), Position(12, 0), Position(12, 1), Position(14, 0)]
    log = reader(folder)
    assert log.latest() == Position(14, 0)
    for start, position in enumerate([Position(9, 0), *expected]):
        log.seek(position)
        assert everything(log) == expected[start:]


@pytest.mark.paper("W13")
def test_a_commit_whose_entries_are_gone_is_lost(folder: Path) -> None:
    write_log(folder, 15, log_file([row(10), batch(11, commit(b"tx"), count=0), row(14)]))
    log = reader(folder)
    log.seek(Position(9, 0))
    first, lost, last = everything(log)
    assert (first, last) == (Position(10, 0), Position(14, 0))
    assert isinstance(lost, Lost) and lost.after == Position(10, 0) and lost.upto.sequence == 11
    assert "b'tx'" in lost.reason


def test_a_column_family_that_nobody_knows_any_more_keeps_its_number(folder: Path) -> None:
    write_log(folder, 15, log_file([batch(10, put(b"k", b"v", 9))]))
    log = reader(folder)
    log.seek(Position(9, 0))
    answer = log.read(5)
    assert isinstance(answer, Updates)
    assert [update.table.name for update in answer.rows()] == ["#9"]


def test_a_position_of_another_database_is_refused(folder: Path) -> None:
    log = reader(folder)
    log.seek(Position(10, 0))
    with pytest.raises(LocalError, match="beyond the newest update"):
        log.read(1)


def test_what_is_no_database_is_said(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(NotSetUp, match="CURRENT"):
        reader(tmp_path)
    with pytest.raises(BadLogUrl, match="report or ignore"):
        reader(folder, unlogged="yes")
    with pytest.raises(BadLogUrl, match="no option"):
        reader(folder, wal="x")
    log = reader(folder)
    shutil.rmtree(folder)
    with pytest.raises(LogUnreachable):
        log.latest()


def test_logs_may_lie_in_another_folder(tmp_path: Path, folder: Path) -> None:
    apart = tmp_path / "logs"
    apart.mkdir()
    for name in ("archive", "000007.log", "000012.log", "000015.log"):
        (folder / name).rename(apart / name)
    log = reader(folder, logs=str(apart))
    log.seek("earliest")
    assert everything(log) == ALL
    (folder / "OPTIONS-000003").write_text(f"[DBOptions]\n  wal_dir={apart}\n")
    log = reader(folder)
    log.seek("earliest")
    assert everything(log) == ALL


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"WAL_ttl_seconds": "3600"}, []),
        ({"WAL_size_limit_MB": "100"}, []),
        ({}, ["WAL_ttl_seconds = 172800"]),
        ({"WAL_ttl_seconds": "60", "recycle_log_file_num": "4"}, ["recycle_log_file_num = 0"]),
        ({"WAL_ttl_seconds": "60", "wal_compression": "kLZ4Compression"}, ["wal_compression"]),
        (
            {"WAL_ttl_seconds": "60", "wal_recovery_mode": "kSkipAnyCorruptedRecords"},
            ["kPointInTimeRecovery"],
        ),
    ],
)
def test_a_check_names_the_option_to_set(folder: Path, settings: dict[str, str], wrong: list[str]) -> None:
    text = "".join(f"  {name}={value}\n" for name, value in {"max_open_files": "-1", **settings}.items())
    (folder / "OPTIONS-000009").write_text(
        f'[Version]\n[DBOptions]\n{text}[CFOptions "default"]\n  WAL_ttl_seconds=9\n'
    )
    bad = [finding.fix for finding in check(f"rocksdb://{folder}") if not finding.ok]
    assert len(bad) == len(wrong)
    for fix, said in zip(bad, wrong, strict=True):
        assert said in fix
