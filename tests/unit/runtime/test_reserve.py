"""A journal on a full disk: it goes on in what is set aside, then waits, and loses nothing."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.servers.small_disk import fill, small_disk
from tests.waiting import run, until

from qanat.runtime.commit import GroupCommit
from qanat.runtime.journal import Journal, twin_of
from qanat.runtime.journal_file import NoRoom
from qanat.runtime.reserve import RESERVE_BYTES

BLOCK = [bytes(2_000)]
DISK = "2m,nr_inodes=64"


def test_a_journal_goes_on_in_what_is_set_aside_and_then_says_that_there_is_no_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", DISK) as disk:
        journal = Journal(disk / "journals" / "m.journal")
        journal.write(BLOCK)
        cramped = [journal.cramped]
        fill(disk / "ballast")
        count = 1
        with pytest.raises(NoRoom, match="No space left"):
            while True:
                journal.write(BLOCK)
                count += 1
        cramped.append(journal.cramped)
        assert count >= RESERVE_BYTES // len(BLOCK[0]) // 2 - 1  # in two files
        (disk / "ballast" / "bytes").unlink()
        journal.write(BLOCK)  # the same records again
        journal.write(BLOCK)
        cramped.append(journal.cramped)
        assert cramped == [False, True, False]
        journal.close()
        again = Journal(disk / "journals" / "m.journal")
        again.close()
        assert (again.records, again.repaired) == (BLOCK * (count + 2), [])


@pytest.mark.parametrize("file", [0, 1], ids=["first", "second"])
def test_a_block_that_found_room_in_one_file_alone_is_written_to_the_other_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: int
) -> None:
    path = tmp_path / "journals" / "m.journal"
    journal = Journal(path)
    journal.write([b"one"])
    journal._reserve.give()
    full = (path, twin_of(path))[file]
    write = os.pwrite

    def short(handle: int, data: memoryview, at: int) -> int:
        if Path(os.readlink(f"/proc/self/fd/{handle}")) == full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data, at)

    monkeypatch.setattr(os, "pwrite", short)
    for _ in range(2):
        with pytest.raises(NoRoom):
            journal.write([b"two"])
    monkeypatch.undo()
    journal.write([b"two"])
    journal.write([b"three"])
    journal.close()
    assert path.read_bytes() == twin_of(path).read_bytes()
    again = Journal(path)
    again.close()
    assert (again.records, again.repaired) == ([b"one", b"two", b"three"], [])


def test_records_wait_for_room_and_then_reach_the_disk(tmp_path: Path) -> None:
    async def main(disk: Path) -> None:
        durable: list[int] = []
        room: list[bool] = []
        failures: list[BaseException] = []
        with ThreadPoolExecutor(1) as pool:
            commit = GroupCommit(
                Journal(disk / "journals" / "m.journal"), pool, durable.append, failures.append, room.append
            )
            commit.append(BLOCK[0])
            await until(lambda: durable == [1])
            fill(disk / "ballast")
            while room[-1] or len(room) < 3 or durable[-1] == commit.appended:
                commit.append(BLOCK[0])
                waiting = commit.appended
                seen = len(room)
                await until(lambda: len(room) > seen)  # noqa: B023
            assert room[0]
            (disk / "ballast" / "bytes").unlink()
            await until(lambda: durable[-1] == waiting)
            await until(lambda: room[-1])
            await commit.close()
        assert failures == []

    with small_disk(tmp_path / "small", DISK) as disk:
        run(main(disk))


def test_a_node_that_stops_does_not_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        room: list[bool] = []
        with ThreadPoolExecutor(1) as pool:
            journal = Journal(tmp_path / "journals" / "m.journal")
            commit = GroupCommit(journal, pool, lambda upto: None, lambda error: None, room.append)

            def full(records: list[bytes]) -> None:
                raise NoRoom("full")

            monkeypatch.setattr(journal, "write", full)
            commit.append(b"one")
            await until(lambda: room)
            await commit.close()
        assert room[0] is False

    run(main())
