"""The frame's bytes, and what the reader refuses."""

import struct
from typing import Any

import numpy as np
import pytest

from qanat.events.checksum import crc32c
from qanat.wire.frame import CONTROL_LIMIT, FrameTooLarge, MalformedFrame, encode
from qanat.wire.reader import FrameReader


def flat(parts: list[Any]) -> bytes:
    return b"".join(parts)


def header(length: int, control_length: int, *, flags: int = 0, crc: int | None = None) -> bytes:
    head = struct.pack("<IBBHI", length, 40, flags, 7, control_length)
    return head + struct.pack("<I", crc32c(head) if crc is None else crc)


def test_layout_byte_by_byte() -> None:
    data = flat(encode(33, 0x0102, b"abcde", [b"12345678", b"ABCDEFGH"]))
    assert data[0:4] == (8 + 16).to_bytes(4, "little")
    assert data[4] == 33
    assert data[5] == 3
    assert data[6:8] == b"\x02\x01"
    assert data[8:12] == (8).to_bytes(4, "little")
    assert data[16:24] == b"abcde\0\0\0"
    assert data[24:] == b"12345678ABCDEFGH"
    assert int.from_bytes(data[12:16], "little") == crc32c(data[0:12] + data[16:24])


def test_attachments_are_not_copied() -> None:
    attachment = memoryview(bytearray(1000))
    parts = encode(33, 1, b"x", [attachment])
    assert parts[1] is attachment


def test_attachment_is_a_view_that_is_never_overwritten() -> None:
    reader = FrameReader(initial_bytes=256, largest_bytes=1024)
    held = []
    for i in range(200):
        reader.feed(flat(encode(33, 1, b"", [bytes([i]) * 96])))
        frame = reader.next_frame()
        assert frame is not None
        held.append(frame.attachment)
    assert all(bytes(view) == bytes([i]) * 96 for i, view in enumerate(held))


def test_buffers_are_taken_back_when_no_view_is_left() -> None:
    reader = FrameReader(initial_bytes=4096, largest_bytes=4096)
    seen = set()
    for _ in range(500):
        reader.feed(flat(encode(33, 1, b"", [bytes(1000)])))
        frame = reader.next_frame()
        assert frame is not None
        seen.add(id(frame.attachment.obj))
        del frame
    assert len(seen) <= 3


def test_batches_stand_aligned() -> None:
    reader = FrameReader()
    for size in range(20):
        reader.feed(flat(encode(33, 1, bytes(size), [bytes(64)])))
        frame = reader.next_frame()
        assert frame is not None
        assert frame.control == bytes(size)
        assert np.frombuffer(frame.attachment, dtype="u1").ctypes.data % 8 == 0


def test_over_limit_is_refused_before_anything_is_allocated() -> None:
    reader = FrameReader(limit=1000, initial_bytes=64)
    reader.feed(header(1001, 0))
    with pytest.raises(MalformedFrame, match="1001 attached bytes, over the limit of 1000") as caught:
        reader.next_frame()
    assert caught.value.code == "over_limit"
    assert reader.capacity_bytes == 64


def test_over_limit_control() -> None:
    reader = FrameReader(control_limit=100)
    reader.feed(header(101, 101))
    with pytest.raises(MalformedFrame, match="over the limit of 100"):
        reader.next_frame()


def test_corrupt_length_is_found_before_allocation() -> None:
    reader = FrameReader(initial_bytes=64)
    reader.feed(header(15_000_000, 0, crc=12345))
    with pytest.raises(MalformedFrame, match="checksum") as caught:
        reader.next_frame()
    assert caught.value.code == "malformed"
    assert reader.capacity_bytes == 64


@pytest.mark.parametrize(
    ("length", "control", "flags"),
    [(0, 8, 0), (8, 16, 0), (16, 16, 8), (16, 16, 0x80), (4, 4, 5), (0, 0xFFFFFFFF, 0)],
)
def test_impossible_lengths_and_flags(length: Any, control: Any, flags: Any) -> None:
    reader = FrameReader()
    reader.feed(header(length, control, flags=flags))
    with pytest.raises(MalformedFrame):
        reader.next_frame()


def test_a_frame_too_large_is_not_sent() -> None:
    with pytest.raises(FrameTooLarge):
        encode(33, 1, b"", [bytes(11)], limit=10)
    with pytest.raises(FrameTooLarge):
        encode(33, 1, bytes(CONTROL_LIMIT + 1))


def test_one_large_frame_gets_a_buffer_of_its_own() -> None:
    reader = FrameReader(initial_bytes=256, largest_bytes=1024)
    reader.feed(flat(encode(33, 1, b"c", [bytes(50_000)])))
    frame = reader.next_frame()
    assert frame is not None
    assert frame.attachment.nbytes == 50_000


def test_silent_connections_give_their_buffer_back() -> None:
    reader = FrameReader(initial_bytes=256, largest_bytes=4096)
    frame = flat(encode(33, 1, b"c", [bytes(1000)]))
    for _ in range(5):
        reader.feed(frame)
        assert reader.next_frame() is not None
    reader.trim()
    assert reader.capacity_bytes == 0
    reader.feed(frame[:100])
    reader.trim()
    assert reader.pending_bytes == 100, "a fragment is not thrown away"
    reader.feed(frame[100:])
    assert reader.next_frame() is not None
