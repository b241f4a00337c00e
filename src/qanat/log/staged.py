"""Files that a publisher on this machine has laid down in the log's folder, to become segments as they are.

A staged file is what a segment file is, but for its head and the numbers of its batches, which are the log's
to give. A log that takes one over writes these, and no event's bytes are moved: they stay where the publisher
wrote them, and are read once, to check them. What a publisher does not hand over is removed when it leaves,
and when the log is opened again.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from qanat.events.batch import Batch
from qanat.events.errors import MalformedBatch
from qanat.events.layout import HEADER_BYTES, Header, peek
from qanat.events.verify import check_given
from qanat.log.disk import Disk
from qanat.log.positions import Highest, Positions
from qanat.log.segment_file import HEAD_BYTES
from qanat.log.walk import check_times, events_in, times_us

ENDING = ".staged.tmp"
"""A log that is opened removes what ends so: whoever wrote it has no answer, and will publish it again."""


class Laid(NamedTuple):
    """A batch of a staged file, checked."""

    offset: int
    header: Header
    head: bytearray
    """The header's bytes, to be numbered."""
    events: int
    times_us: tuple[int, int]


class Whole(NamedTuple):
    """All of a staged file, of which every row is new."""

    laid: list[Laid]
    after: Highest
    """The highest positions once it is stored."""


def is_staged(name: str) -> bool:
    return os.path.basename(name) == name and name.endswith(ENDING)


def batches(disk: Disk, path: str) -> Iterator[tuple[int, Batch]]:
    """(file offset, batch) of a staged file, each checked, in memory of its own; raises `MalformedBatch`."""
    at, size = HEAD_BYTES, disk.size(path)
    while at < size:
        header = peek(disk.read_copy(path, at, HEADER_BYTES))
        yield at, Batch.decode(disk.read_copy(path, at, header.size))
        at += header.size
    if at == HEAD_BYTES:
        raise MalformedBatch("a staged file without a batch")


def whole(disk: Disk, path: str, positions: Positions, latest_us: int | None = None) -> Whole | None:
    """What the file holds, if all of it is new; None if some of it is had already. Raises what
    `Positions.admit` raises."""
    scratch = positions.copy()
    laid: list[Laid] = []
    after: Highest = {}
    for offset, batch in batches(disk, path):
        check_given(batch)
        if latest_us is not None:
            check_times(batch, latest_us)
        rows, then = scratch.admit(batch)
        if not batch.count or rows != slice(0, batch.count):
            return None
        scratch.learn(then)
        after |= then
        head = bytearray(batch.encode()[:HEADER_BYTES])
        laid.append(Laid(offset, batch.header, head, events_in(batch), times_us(batch)))
    return Whole(laid, after)


def remove(disk: Disk, folder: str, beginning: str) -> None:
    """Staged files whose names begin so: their publisher has gone."""
    _remove(disk, folder, lambda name: name.startswith(beginning))


def remove_but(disk: Disk, folder: str, beginnings: tuple[str, ...]) -> None:
    """Staged files of nobody who is there: their names begin with none of these."""
    _remove(disk, folder, lambda name: not name.startswith(beginnings))


def _remove(disk: Disk, folder: str, goes: Callable[[str], bool]) -> None:
    for name in disk.list(folder):
        if name.endswith(ENDING) and goes(name):
            with suppress(FileNotFoundError):
                disk.remove(f"{folder}/{name}")
