"""Which files are written anew, and how they are put together."""

from __future__ import annotations

import pytest

from qanat.pipeline.archive.manifest import DataFile, Range
from qanat.pipeline.compact.files import Content, choose

pytestmark = pytest.mark.paper("D5")


def _file(first: int, last: int, day: int = 1) -> DataFile:
    rows = last - first + 1
    return DataFile(
        path=f"day=2026-01-0{day}/{first}",
        first=first,
        last=last,
        rows=rows,
        bytes=rows * 100,
        checksum="",
        min_time_us=0,
        max_time_us=0,
    )


def test_neighbours_of_one_day_become_one_as_far_as_they_fit() -> None:
    files = [_file(1, 10), _file(11, 20), _file(21, 30), _file(31, 40, 2), _file(41, 50, 2), _file(51, 60, 2)]
    half = Content(10, 5, continued=False)
    whole = Content(10, 10, continued=False)
    chosen = choose(files, [half, half, half, half, whole, half], 1000)
    assert chosen.groups == [0, 0, 1, 2, -1, 3]
    assert chosen.pieces == [Range(1, 40), Range(51, 60)]
    assert chosen.piece_of_group == [0, 0, 0, 1]


def test_a_run_that_goes_on_from_one_file_into_the_next_changes_both() -> None:
    files = [_file(1, 10), _file(11, 20), _file(21, 30, 2)]
    whole = Content(4, 4, continued=False)
    chosen = choose(files, [whole, whole, Content(4, 4, continued=True)], 1000)
    assert (chosen.groups, chosen.pieces) == ([-1, 0, 1], [Range(11, 30)])


def test_what_was_lost_lies_between_pieces() -> None:
    half = Content(10, 5, continued=False)
    chosen = choose([_file(1, 10), _file(15, 24)], [half, half], 10_000)
    assert (chosen.groups, chosen.pieces) == ([0, 1], [Range(1, 10), Range(15, 24)])


def test_without_garbage_nothing_is_written() -> None:
    chosen = choose([_file(1, 10)], [Content(10, 10, continued=False)], 1000)
    assert (chosen.groups, chosen.outputs) == ([-1], 0)
