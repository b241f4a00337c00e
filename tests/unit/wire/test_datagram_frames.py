"""One frame per datagram."""

import pytest

from qanat.wire.frame import MalformedFrame, decode_one, encode

DATA = b"".join(encode(17, 20, b"control", [b"attached"]))


def test_there_and_back() -> None:
    frame = decode_one(DATA)
    assert (frame.type, frame.channel, frame.control, bytes(frame.attachment)) == (
        17,
        20,
        b"control",
        b"attached",
    )


def test_every_truncation_and_addition_is_refused() -> None:
    for cut in range(len(DATA)):
        with pytest.raises(MalformedFrame):
            decode_one(DATA[:cut])
    with pytest.raises(MalformedFrame):
        decode_one(DATA + b"\0")


def test_every_flipped_bit_before_the_attachment_is_refused() -> None:
    for place in range(len(DATA) - len(b"attached")):
        for bit in range(8):
            damaged = bytearray(DATA)
            damaged[place] ^= 1 << bit
            with pytest.raises(MalformedFrame):
                decode_one(bytes(damaged))


def test_too_long() -> None:
    with pytest.raises(MalformedFrame) as caught:
        decode_one(DATA, limit=len(DATA) - 1)
    assert caught.value.code == "over_limit"
