"""Whatever arrives, in whatever pieces: the same frames, or a refusal with a reason."""

from contextlib import suppress
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.wire.frame import MalformedFrame, encode
from qanat.wire.reader import FrameReader

frames = st.lists(
    st.tuples(
        st.integers(0, 255),
        st.integers(0, 65535),
        st.binary(max_size=40),
        st.lists(st.binary(max_size=300), max_size=3),
    ),
    max_size=8,
)


def flat(frames_: list[Any]) -> bytes:
    return b"".join(b"".join(encode(*frame)) for frame in frames_)


def drain(reader: FrameReader) -> list[Any]:
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(frame)
    return found


def read(reader: FrameReader, pieces: list[Any]) -> list[Any]:
    """All frames, as values taken only at the end: a buffer reused too early would show."""
    found = []
    for piece in pieces:
        reader.feed(piece)
        found += drain(reader)
    return [(f.type, f.channel, f.control, bytes(f.attachment)) for f in found]


@given(frames, st.lists(st.integers(0, 3000), max_size=20), st.sampled_from([16, 17, 64, 256, 16384]))
def test_any_chunking_gives_equal_frames(frames_: Any, cuts: Any, initial_bytes: Any) -> None:
    data = flat(frames_)
    edges = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    reader = FrameReader(initial_bytes=initial_bytes, largest_bytes=512)
    assert read(reader, pieces) == [(t, ch, c, b"".join(a)) for t, ch, c, a in frames_]
    assert reader.pending_bytes == 0


@given(frames)
def test_byte_by_byte(frames_: Any) -> None:
    data = flat(frames_)
    reader = FrameReader(initial_bytes=32, largest_bytes=512)
    pieces = [data[i : i + 1] for i in range(len(data))]
    assert read(reader, pieces) == [(t, ch, c, b"".join(a)) for t, ch, c, a in frames_]


@given(frames.filter(bool))
@settings(max_examples=examples(30))
def test_every_truncation_gives_a_prefix_and_waits(frames_: Any) -> None:
    data = flat(frames_)
    whole = [(t, ch, c, b"".join(a)) for t, ch, c, a in frames_]
    for cut in range(len(data)):
        reader = FrameReader()
        got = read(reader, [data[:cut]])
        assert got == whole[: len(got)]
        assert len(got) < len(whole)


@given(frames.filter(bool), st.data())
def test_a_flipped_bit_outside_attachments_is_always_found(frames_: Any, data: Any) -> None:
    raw = bytearray(flat(frames_))
    covered: list[int] = []
    at = 0
    for _type, _channel, control, attachments in frames_:
        size = 16 + len(control) + (-len(control) & 7)
        covered += range(at, at + size)
        at += size + sum(map(len, attachments))
    place = data.draw(st.sampled_from(covered))
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    whole = [(t, ch, c, b"".join(a)) for t, ch, c, a in frames_]
    reader = FrameReader()
    with suppress(MalformedFrame):  # or a longer length, which only makes the reader wait for more
        got = read(reader, [bytes(raw)])
        assert got == whole[: len(got)]
        assert len(got) < len(whole)


@given(st.lists(st.binary(max_size=200), max_size=10), st.integers(0, 100_000))
def test_random_bytes_never_do_harm(pieces: Any, limit: Any) -> None:
    reader = FrameReader(limit, control_limit=4096, initial_bytes=64, largest_bytes=1024)
    with suppress(MalformedFrame):
        read(reader, pieces)
    assert reader.capacity_bytes <= 4096 + limit + 2048
