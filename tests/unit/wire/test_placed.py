"""Frames about what lies on a shelf: read back as they were written, refused when they cannot be."""

from __future__ import annotations

import pytest

from qanat.events.batch import Batch
from qanat.wire.frame import FRAME_LIMIT, MalformedFrame
from qanat.wire.placed import (
    Shelf,
    Taken,
    decode_place,
    decode_shelf,
    decode_taken,
    encode_control,
    encode_place,
)

BATCH = Batch.build(1, [bytes(1000)]).encode()


def test_they_are_read_as_they_were_written() -> None:
    shelf = Shelf("/proc/17/fd/5", 1, 2**40)
    assert decode_shelf(encode_control(shelf)) == shelf
    assert decode_taken(encode_control(Taken(2**40))) == Taken(2**40)
    offset, size, header = decode_place(memoryview(encode_place(2**40, BATCH)), FRAME_LIMIT)
    assert (offset, size, bytes(header)) == (2**40, len(BATCH), bytes(BATCH[:80]))


def test_a_frame_with_a_place_is_a_multiple_of_8_long() -> None:
    assert len(encode_place(0, BATCH)) % 8 == 0


@pytest.mark.parametrize("control", [b"", b"\xc1", encode_control(Taken(1))[:-1], b"\x91\xa1x"])
def test_other_words_are_refused(control: bytes) -> None:
    for decode in (decode_shelf, decode_taken):
        with pytest.raises(MalformedFrame, match="cannot be read"):
            decode(control)


def test_a_place_that_cannot_be_is_refused() -> None:
    place = encode_place(0, BATCH)
    with pytest.raises(MalformedFrame, match="a place of 87 bytes"):
        decode_place(memoryview(place[:-1]), FRAME_LIMIT)
    with pytest.raises(MalformedFrame, match="no batch"):
        decode_place(memoryview(place[:20] + b"\xff" + place[21:]), FRAME_LIMIT)
    with pytest.raises(MalformedFrame, match="outside"):
        decode_place(memoryview(place), len(BATCH) - 1)
