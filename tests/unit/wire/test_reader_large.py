"""Frames that fill a good part of the receive buffer: received where they stay, rather than moved."""

from __future__ import annotations

import pytest

from qanat.wire.frame import encode
from qanat.wire.reader import FrameReader

KIB = 1024


class Counting(FrameReader):
    """Counts what it had to move from one buffer to another."""

    moved = 0

    def _turn(self) -> None:
        self.moved += self.pending_bytes
        super()._turn()


def flow(reader: FrameReader, data: bytes) -> list[bytes]:
    """As from a socket in which the sender is always ahead: each read fills the room that there is."""
    found, at = [], 0
    while at < len(data):
        room = reader.get_buffer()
        assert room.nbytes > 0
        part = data[at : at + room.nbytes]
        room[: len(part)] = part
        reader.advance(len(part))
        at += len(part)
        while (frame := reader.next_frame()) is not None:
            found.append(bytes(frame.attachment))
    return found


def frames(*sizes: int) -> tuple[list[bytes], bytes]:
    bodies = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    return bodies, b"".join(bytes(part) for body in bodies for part in encode(16, 16, b"abc", [body]))


@pytest.mark.parametrize("size", [550 * KIB, 700 * KIB, 1000 * KIB])
def test_frames_of_one_size_are_not_moved(size: int) -> None:
    bodies, data = frames(*[size] * 40)
    reader = Counting(largest_bytes=1024 * KIB)
    assert flow(reader, data) == bodies
    assert reader.moved < 6 * size, "while it learns how large they are"


def test_sizes_that_change_and_a_reader_that_was_trimmed_in_between() -> None:
    reader = Counting(largest_bytes=1024 * KIB)
    for _ in range(3):
        sizes = [900 * KIB, 10, 300 * KIB, 0, 2000 * KIB, 200 * KIB, 200 * KIB, 128 * KIB, 5, 5, 700 * KIB]
        bodies, data = frames(*sizes)
        assert flow(reader, data) == bodies
        reader.trim()
        bodies, data = frames(3, 20 * KIB, 700 * KIB, 40)
        assert flow(reader, data) == bodies
