"""Frames that fill a good part of the receive buffer: received where they stay, rather than moved."""

from __future__ import annotations

import struct

import pytest

from qanat.events.checksum import crc32c
from qanat.wire.frame import CONTROL_LIMIT, FRAME_LIMIT, encode
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


@pytest.mark.parametrize("step", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("claimed", [(CONTROL_LIMIT, 0), (8, FRAME_LIMIT)])
def test_buffers_grow_with_what_arrived_and_not_with_what_a_header_claims(
    claimed: tuple[int, int], step: int
) -> None:
    control, attached = claimed
    checked = struct.pack("<IBBHI", control + attached, 16, 0, 16, control)
    body = bytes(control)
    reader = FrameReader(initial_bytes=1024, largest_bytes=64 * KIB)
    reader.feed(checked + struct.pack("<I", crc32c(body, crc32c(checked))))
    received = 16
    while received < min(40 * step, control + attached):
        assert reader.next_frame() is None
        assert reader.held_bytes <= max(2048, 8 * received), received
        room = reader.get_buffer()
        part = min(step, room.nbytes)
        reader.advance(part)
        received += part
    assert reader.pending_bytes == received


def test_one_large_frame_is_moved_a_bounded_number_of_times() -> None:
    bodies, data = frames(16_000 * KIB)
    reader = Counting(largest_bytes=1024 * KIB)
    assert flow(reader, data) == bodies
    assert reader.moved < 2 * len(data)


def test_what_was_received_before_is_given_back_though_a_part_of_a_frame_waits() -> None:
    reader = FrameReader(initial_bytes=KIB, largest_bytes=64 * KIB)
    _, data = frames(*[30 * KIB] * 40)
    held = flow(reader, data)
    reader.feed(data[:100])
    assert len(held) == 40 and reader.held_bytes > 100 * KIB
    reader.trim()
    assert reader.held_bytes <= 64 * KIB and reader.pending_bytes == 100
