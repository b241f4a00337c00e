"""How large an archive's files become: how many rows a file gets, how a commit is cut, which small files are
merged."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.pipeline.archive.manifest import DataFile, Manifest, Range
from qanat.pipeline.archive.plan import ranges_of, rows_per_file
from qanat.pipeline.archive.settings import ArchiveJobSettings, ArchiveSettings
from qanat.pipeline.archive.tidy import groups_of
from qanat.runtime.config import BadConfiguration, load

pytestmark = pytest.mark.paper("D4")
KIB, MIB = 1 << 10, 1 << 20


def data_file(first: int, last: int, size: int, rows: int = 0, day: str = "2026-11-16") -> DataFile:
    return DataFile(
        path=f"day={day}/{first}-{last}.parquet",
        first=first,
        last=last,
        rows=rows or last - first + 1,
        bytes=size,
        checksum="crc32c:00000000",
        min_time_us=0,
        max_time_us=0,
    )


class Log:
    """A stream whose events need so many bytes each; notes what it was asked."""

    def __init__(self, row_bytes: int) -> None:
        self.row_bytes = row_bytes
        self.asked: list[tuple[str, int, int]] = []

    def look(self, stream: str, start: int, size: int) -> Any:
        self.asked.append((stream, start, size))
        return SimpleNamespace(within=max(start, start + size // self.row_bytes - 1))


def rows_of(files: tuple[DataFile, ...], log: Log, first: int = 1, file_bytes: int = 128 * MIB) -> int:
    client: Any = log
    manifest, settings = Manifest(stream="s", files=files), ArchiveSettings(file_bytes=file_bytes)
    return rows_per_file(client, manifest, first, first + 10**9, settings)


def test_a_new_archive_goes_by_what_events_need_in_the_log() -> None:
    log = Log(row_bytes=256)
    assert rows_of((), log, first=501) == 512 * KIB
    assert log.asked == [("s", 501, 128 * MIB)]
    assert rows_of((), Log(row_bytes=200 * MIB)) == 1  # an event that is larger than a file should be
    assert rows_of((), log, file_bytes=64 * MIB) == 256 * KIB


def test_a_grown_archive_goes_by_its_eight_newest_files() -> None:
    log = Log(row_bytes=1)
    old = tuple(data_file(i * 1000 + 1, i * 1000 + 1000, 10_000_000) for i in range(5))
    new = tuple(data_file(i * 1000 + 1, i * 1000 + 1000, 256_000) for i in range(5, 13))
    assert rows_of(old + new, log, first=13_001) == 512 * KIB
    # A row is what is in the file: what a tombstone stands for beside its own number needs no room.
    assert rows_of((data_file(1, 1_000_000, 2_560_000, rows=10_000),), log) == 512 * KIB
    assert rows_of((data_file(1, 1, 200 * MIB),), log) == 1
    assert log.asked == []  # the server is not asked


def test_files_with_a_few_events_each_say_nothing_of_what_events_need() -> None:
    """Each has some KiB of its own: a backlog behind a quiet time would be cut into tens of times too
    many."""
    quiet = tuple(data_file(i, i, 9_000) for i in range(1, 9))
    assert rows_of(quiet, Log(row_bytes=256), first=9) == 512 * KIB


@given(
    st.integers(1, 10**12),
    st.integers(1, 5_000),
    st.lists(st.integers(-10, 6_000), max_size=4),
    st.integers(1, 3_000),
    st.integers(1, 16),
    st.integers(1, 2_000),
)
def test_a_commit_is_cut_into_ranges_that_cover_it(
    first: int, count: int, days: list[int], rows: int, tasks: int, least: int
) -> None:
    last, cuts = first + count - 1, [first + day for day in days]
    ranges = ranges_of(first, last, cuts, rows, tasks, least)
    assert ranges[0].first == first and ranges[-1].last == last
    assert all(a.last + 1 == b.first for a, b in pairwise(ranges))
    assert all(1 <= size(one) <= rows for one in ranges)
    edges = [first, *sorted({cut for cut in cuts if first < cut <= last}), last + 1]
    for begin, end in pairwise(edges):
        of_day = [one for one in ranges if begin <= one.first < end]
        assert of_day[-1].last == end - 1, "a file would have events of two days"
        sizes = [size(one) for one in of_day]
        assert max(sizes) - min(sizes) <= 1, "one task would have more to do than another"
        # Not more files than their size asks for, unless there is enough to do for more tasks.
        wanted = max(-(-(end - begin) // rows), min(tasks, (end - begin) // least), 1)
        assert len(of_day) == wanted


def size(one: Range) -> int:
    return one.last - one.first + 1


@pytest.mark.parametrize(
    ("count", "rows", "tasks", "least", "expected"),
    [
        (1_000, 4_000, 2, 200_000, [1_000]),
        (1_000, 4_000, 2, 500, [500, 500]),
        (1_000, 4_000, 2, 501, [1_000]),
        (10_000, 4_000, 2, 200_000, [3_333, 3_333, 3_334]),
        (3, 1, 8, 200_000, [1, 1, 1]),
    ],
)
def test_few_events_are_one_file_and_many_are_files_of_their_size(
    count: int, rows: int, tasks: int, least: int, expected: list[int]
) -> None:
    assert [size(one) for one in ranges_of(1, count, [], rows, tasks, least)] == expected


def test_small_neighbours_of_a_day_are_merged_up_to_the_size_of_a_file() -> None:
    sizes = [300, 300, 300, 300, 600, 200, 200, 499, 400]
    files = [data_file(i, i, size * KIB) for i, size in enumerate(sizes, 1)]
    groups = [[file.first for file in group] for group in groups_of(files, 1_000 * KIB)]
    # The fourth is alone, the fifth is large enough, and the last would be too much.
    assert groups == [[1, 2, 3], [6, 7, 8]]
    assert groups_of([data_file(1, 1, KIB), data_file(3, 3, KIB)], MIB) == []
    next_day = data_file(2, 2, KIB, day="2026-11-17")
    assert groups_of([data_file(1, 1, KIB), next_day], MIB) == []


@given(st.lists(st.integers(1, 2_000), max_size=30), st.integers(2, 2_000))
def test_what_is_merged_is_never_too_large_and_merging_again_finds_no_more_in_it(
    sizes: list[int], file_bytes: int
) -> None:
    files = [data_file(i, i, size) for i, size in enumerate(sizes, 1)]
    for group in groups_of(files, file_bytes):
        assert len(group) > 1 and sum(file.bytes for file in group) <= file_bytes
        assert all(a.last + 1 == b.first for a, b in pairwise(group))
        assert all(file.bytes * 2 < file_bytes for file in group)


def test_the_size_of_files_is_a_setting() -> None:
    assert load(ArchiveJobSettings)[0].archive.file_bytes == 128 * MIB
    assert load(ArchiveJobSettings, flags=["archive.file_bytes=65536"])[0].archive.file_bytes == 64 * KIB
    for wrong in ("65535", "0", "large"):
        with pytest.raises(BadConfiguration, match="file_bytes"):
            load(ArchiveJobSettings, flags=[f"archive.file_bytes={wrong}"])
