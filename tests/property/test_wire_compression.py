"""Compressed messages: the same bytes come back, and bad ones cost a refusal with a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.wire.compression import WORTH_BYTES, pack, unpack
from qanat.wire.frame import FRAME_LIMIT, MalformedFrame

CODECS = st.sampled_from(["lz4", "zstd"])
TEXT = st.binary(min_size=1, max_size=64).map(lambda piece: piece * (4096 // len(piece)))


@given(CODECS, st.binary(max_size=40), st.lists(TEXT, min_size=1, max_size=3))
def test_there_and_back(codec: str, control: bytes, parts: list[bytes]) -> None:
    packed = pack(codec, control, parts)
    if packed is None:  # it does not compress
        return
    prefixed, attachment = packed
    sent = b"".join(attachment)
    assert len(sent) % 8 == 0 and len(sent) < sum(map(len, parts))
    back, whole = unpack(prefixed, memoryview(sent), FRAME_LIMIT)
    assert (back, bytes(whole)) == (control, b"".join(parts))


@given(CODECS, st.binary(max_size=WORTH_BYTES - 1))
def test_small_ones_are_left_alone(codec: str, data: bytes) -> None:
    assert pack(codec, b"c", [data]) is None


@given(CODECS, TEXT, st.data())
def test_damage_is_refused_or_harmless(codec: str, text: bytes, data: st.DataObject) -> None:
    """What comes out is never longer than it was said to be; that it is right, the batches' checksums
    tell."""
    packed = pack(codec, b"control", [text])
    if packed is None:
        return
    prefixed, attachment = packed
    frame = bytearray(prefixed + b"".join(attachment))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(frame)))
    broken = bytes(frame) if data.draw(st.booleans()) else bytes(frame[:cut])
    limit = 100_000
    try:
        _, whole = unpack(broken[: len(prefixed)], memoryview(broken[len(prefixed) :]), limit)
    except MalformedFrame as refusal:
        assert refusal.code in ("malformed", "over_limit")
    else:
        assert len(whole) <= limit


@given(st.binary(max_size=30), st.binary(max_size=200))
def test_any_bytes(control: bytes, attachment: bytes) -> None:
    try:
        unpack(control, memoryview(attachment), 10_000)
    except MalformedFrame:
        pass


def test_a_length_over_the_limit_allocates_nothing() -> None:
    packed = pack("zstd", b"", [bytes(100_000)])
    assert packed is not None
    with pytest.raises(MalformedFrame) as caught:
        unpack(packed[0], memoryview(b"".join(packed[1])), 99_999)
    assert caught.value.code == "over_limit"
