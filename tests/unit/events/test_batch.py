"""The batch: what goes in comes out, views share bytes, and nothing malformed gets in."""

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.events import layout
from qanat.events.batch import (
    FRAME_LIMIT,
    HEADER_BYTES,
    Batch,
    Kind,
    decode_all,
    number,
    peek,
    stream_id,
)
from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError, MalformedBatch
from qanat.events.join import concat
from qanat.events.position import Position

STREAM = stream_id("prices")


def reseal(data: bytearray) -> bytearray:
    """Both checksums made right again, so that a test reaches the checks behind them."""
    struct.pack_into("<I", data, 44, crc32c(memoryview(data)[HEADER_BYTES:]))
    layout.seal_header(data)
    return data


def full_batch() -> Batch:
    return Batch.build(
        STREAM,
        [b"one", b"", b"three"],
        first=7,
        keys=[b"k1", b"", b"key-3"],
        times=[5, 6, 7],
        kinds=[Kind.DATA, Kind.GC, Kind.DATA],
        attributes=[{"a": 1, "s": "x"}, {"a": "text", "b": True}, {"f": 2.5, "raw": b"\x00\xff"}],
        source="shard-3",
        positions=([10, 10, 12], [0, 1, 0]),
    )


def test_every_column_comes_back() -> None:
    batch = Batch.decode(bytes(full_batch().encode()))
    assert (batch.first, batch.last, batch.span, batch.count) == (7, 9, 3, 3)
    assert batch.payloads().to_pylist() == [b"one", b"", b"three"]
    assert [batch.key(i) for i in range(3)] == [b"k1", b"", b"key-3"]
    assert batch.times().tolist() == [5, 6, 7]
    assert batch.kinds is not None
    assert batch.kinds.tolist() == [0, 1, 0]
    assert [batch.attribute_row(i) for i in range(3)] == [
        {"a": 1, "s": "x"},
        {"a": "text", "b": True},
        {"f": 2.5, "raw": b"\x00\xff"},
    ]
    assert batch.source_names == ["shard-3"]
    positions = batch.positions()
    assert positions is not None
    assert [Position(int(s), int(i)) for s, i in zip(*positions, strict=True)] == [(10, 0), (10, 1), (12, 0)]


def test_ten_byte_events_cost_little_more_than_ten_bytes() -> None:
    batch = Batch.build(STREAM, [b"0123456789"] * 1000, first=1, time_us=1, source="client", position=1)
    assert batch.size <= 1000 * 10 + 128


def test_columns_are_views_of_the_batchs_own_bytes() -> None:
    data = bytearray(Batch.build(STREAM, np.zeros((4, 8), np.uint8), first=1, times=[1, 2, 3, 4]).encode())
    batch = Batch.decode(data)
    payloads, times = batch.payloads(), batch.times()
    data[-8:] = b"changed!"
    data[HEADER_BYTES : HEADER_BYTES + 8] = (99).to_bytes(8, "little")
    assert payloads[3].as_py() == b"changed!"
    assert times[0] == 99
    with pytest.raises(MalformedBatch, match="body's CRC32C"):
        Batch.decode(data)


def test_a_range_of_a_batch_is_a_view() -> None:
    batch = full_batch()
    part = batch.slice(1, 3)
    assert (part.first, part.last, part.count, part.is_whole) == (8, 9, 2, False)
    assert part.payloads().to_pylist() == [b"", b"three"]
    assert part.payloads().buffers()[2].address == batch.payloads().buffers()[2].address
    assert part.slice(1, 2).attribute_row(0) == {"f": 2.5, "raw": b"\x00\xff"}
    again = Batch.decode(bytes(part.encode()))
    assert (again.first, again.last, again.key(1)) == (8, 9, b"key-3")


def test_dense_positions_follow_a_slice() -> None:
    batch = Batch.build(STREAM, [b"a", b"b", b"c"], first=1, source="client", position=40)
    part = Batch.decode(bytes(batch.slice(2, 3).encode()))
    positions = part.positions()
    assert part.positions_dense
    assert positions is not None
    assert positions[0].tolist() == [42]


def test_taking_rows_keeps_what_the_batch_covers() -> None:
    taken = Batch.decode(bytes(full_batch().take(np.array([False, True, False])).encode()))
    assert (taken.first, taken.last, taken.count) == (7, 9, 1)
    assert taken.seqs().tolist() == [8]
    assert taken.attribute_row(0) == {"a": "text", "b": True}
    none = full_batch().take([])
    assert (none.first, none.last, none.count) == (7, 9, 0)
    assert Batch.decode(none.encode()).span == 3


def test_joining_slices_gives_the_whole_again() -> None:
    batch = full_batch()
    joined = concat([batch.slice(0, 1), batch.slice(1, 1), batch.slice(1, 3)])
    assert joined.to_arrow().equals(batch.to_arrow())
    assert joined.source_names == ["shard-3"]
    with pytest.raises(MalformedBatch, match="not adjacent"):
        concat([batch.slice(1, 2), batch.slice(0, 1)])


def test_joining_batches_of_different_sources_keeps_each_rows_source() -> None:
    a = Batch.build(STREAM, [b"a", b"b"], first=1, source="one", position=5)
    b = Batch.build(STREAM, [b"c"], first=3, source="two", position=9, time_us=3)
    joined = Batch.decode(bytes(concat([a, b]).encode()))
    codes, positions = joined.source_codes(), joined.positions()
    assert codes is not None
    assert positions is not None
    assert [joined.source_names[c] for c in codes] == ["one", "one", "two"]
    assert positions[0].tolist() == [5, 6, 9]
    assert joined.times().tolist() == [0, 0, 3]


@pytest.mark.paper("S2")
def test_a_tombstone_covers_a_range_and_rows_never_overlap() -> None:
    batch = Batch.build(
        STREAM,
        [b"", b"live", b""],
        first=1,
        seqs=[10, 11, 15],
        ranges=[10, 1, 4],
        kinds=[Kind.TOMBSTONE, Kind.DATA, Kind.TOMBSTONE],
    )
    assert (batch.first, batch.last, batch.count) == (1, 15, 3)
    with pytest.raises(MalformedBatch, match="overlap"):
        Batch.build(STREAM, [b"", b""], first=1, seqs=[5, 6], ranges=[5, 3], kinds=[2, 2])
    with pytest.raises(MalformedBatch, match="only tombstones"):
        Batch.build(STREAM, [b"", b""], first=1, seqs=[5, 6], ranges=[5, 1], kinds=[1, 0])


def test_the_events_behind_a_tombstone_are_a_batch_of_their_own() -> None:
    batch = Batch.build(
        STREAM,
        [b"", b"a", b"b", b""],
        first=1,
        seqs=[10, 11, 12, 20],
        ranges=[10, 1, 1, 8],
        kinds=[2, 0, 0, 2],
    )
    part = Batch.decode(bytes(batch.slice(1, 3).encode()))
    assert (part.first, part.last, part.kinds, part.ranges) == (11, 12, None, None)
    assert part.payloads().to_pylist() == [b"a", b"b"]
    taken = Batch.decode(bytes(batch.take([1]).encode()))
    assert (taken.first, taken.last, taken.seqs().tolist()) == (1, 20, [11])


def test_numbering_touches_the_header_alone() -> None:
    data = bytearray(Batch.build(STREAM, [b"a", b"b"], source="client", position=1).encode())
    body = bytes(data[HEADER_BYTES:])
    number(data, 1_000_000)
    assert bytes(data[HEADER_BYTES:]) == body
    assert Batch.decode(data).seqs().tolist() == [1_000_000, 1_000_001]


def test_a_ghost_counts_bytes_that_it_does_not_carry() -> None:
    ghost = Batch.build(STREAM, (1000, 500), first=1, ghost=True)
    assert ghost.size == HEADER_BYTES
    assert ghost.virtual_size == HEADER_BYTES + 500_000
    assert Batch.decode(ghost.encode()).slice(10, 20).count == 10
    with pytest.raises(MalformedBatch, match="ghost"):
        ghost.payloads()


def test_batches_end_to_end_are_read_one_by_one() -> None:
    run = b"".join(bytes(Batch.build(STREAM, [b"x" * i], first=i).encode()) for i in range(1, 6))
    assert [batch.first for batch in decode_all(run)] == [1, 2, 3, 4, 5]


def test_arrow_and_numpy_columns_are_taken_as_they_are() -> None:
    table = pa.table({"p": pa.array(["a", None, "ccc"]), "n": pa.array([1, 2, None])})
    batch = Batch.build(STREAM, table["p"], attributes={"n": table["n"]})
    assert batch.payloads().to_pylist() == [b"a", b"", b"ccc"]
    assert [batch.attribute_row(i) for i in range(3)] == [{"n": 1}, {"n": 2}, {}]
    sliced = pa.array([b"zz", b"aa", b"bb"], pa.binary(2)).slice(1)
    assert Batch.build(STREAM, sliced).payloads().to_pylist() == [b"aa", b"bb"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"payloads": [b"a"], "keys": [b"a", b"b"]}, "2 keys for 1 events"),
        ({"payloads": [1]}, "must be bytes"),
        ({"payloads": np.zeros(4, np.uint8)}, "2 dimensions"),
        ({"payloads": [b"a"], "attributes": [{"x": object()}]}, "not str, int"),
        ({"payloads": [b"a"], "attributes": [{"x": 1 << 64}]}, "64 bits"),
        ({"payloads": [b"a"], "attributes": {"x": pa.array([[1]])}}, "cast it"),
        ({"payloads": [b"a"], "attributes": [{"": 1}]}, "name has 1 to"),
        ({"payloads": [b"a"], "times": [1, 2]}, "2 times for 1"),
        ({"payloads": [b"a", b"b"], "span": 1}, "cannot cover"),
        ({"payloads": [bytes(FRAME_LIMIT)]}, "over the limit"),
        ({"payloads": [b"a"], "source": "x" * 300, "position": 1}, "1 to 255"),
        ({"payloads": [b"a"], "position": 1}, "positions without a source"),
        ({"payloads": [b"a"] * 2, "source": "x", "position": (1 << 63) - 1}, "end at 2|are 0 to 2"),
        ({"payloads": [b"a"], "source": "x", "position": -1}, "are 0 to 2"),
    ],
)
def test_columns_that_make_no_batch_are_refused(columns: dict[str, object], reason: str) -> None:
    with pytest.raises(MalformedBatch, match=reason):
        Batch.decode(Batch.build(STREAM, **columns).encode())


@pytest.mark.parametrize(
    ("offset", "fmt", "value", "reason"),
    [
        (0, "<4s", b"XXXX", "not a batch"),
        (8, "<H", 9, "version 9"),
        (10, "<H", 0x8000, "unknown flags"),
        (12, "<I", 1 << 30, "outside"),
        (12, "<I", 400, "add up"),
        (24, "<Q", (1 << 63) - 1, "end at 2"),
        (32, "<Q", 1, "do not fit a span"),
        (40, "<I", 1, "add up|cannot cover"),
        (56, "<I", 3, "add up|rise"),
    ],
)
def test_a_header_that_lies_is_refused(offset: int, fmt: str, value: object, reason: str) -> None:
    data = bytearray(full_batch().encode()) + bytes(100)
    struct.pack_into(fmt, data, offset, value)
    with pytest.raises(MalformedBatch, match=reason):
        Batch.decode(reseal(data[: len(data) - 100]) + bytes(100))


@pytest.mark.parametrize("position", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("columns", [{}, {"payloads": [b"a", b"bcd"]}, {"keys": [b"k", b"l"]}])
def test_dense_positions_end_where_sequence_numbers_do(position: int, columns: dict[str, Any]) -> None:
    """Whether the batch is of the plain shape that is checked by its sizes alone, or of any other."""
    whole = {"payloads": [b"a", b"b"], "source": "feed", **columns}
    data = bytearray(Batch.build(STREAM, position=(1 << 63) - 2, **whole).encode())
    assert Batch.decode(data).positions()[0].tolist() == [(1 << 63) - 2, (1 << 63) - 1]  # type: ignore[index]
    layout.reposition(data, position)
    with pytest.raises(MalformedBatch, match="dense positions end at 2"):
        Batch.decode(data)
    with pytest.raises(MalformedBatch, match="dense positions"):
        Batch.build(STREAM, position=position, **whole)


@pytest.mark.parametrize(
    ("seqs", "ranges"),
    [
        ([1, (1 << 64) - 1], [1, 1]),  # past the end
        ([(1 << 64) - 4, (1 << 64) - 3], [1, 1]),  # around the end, to 1 and 2, before the first
        ([1, (1 << 62)], [1, 1 << 63]),  # a grave that reaches back past the beginning
        ([1, (1 << 62)], [1, (1 << 64) - 1]),
        ([0, (1 << 62)], [(1 << 64) - 1, 1]),
    ],
)
def test_sequence_numbers_and_ranges_never_go_around_the_end(seqs: list[int], ranges: list[int]) -> None:
    span = (1 << 62) + 1
    batch = Batch.build(
        STREAM, [b"", b""], first=5, span=span, seqs=[5, span + 4], ranges=[1, span - 1], kinds=[2, 2]
    )
    where = batch.where()
    data = bytearray(batch.encode())
    Batch.decode(data)
    struct.pack_into("<QQ", data, where.seqs, *seqs)
    struct.pack_into("<QQ", data, where.ranges, *ranges)
    with pytest.raises(MalformedBatch, match=r"range|order"):
        Batch.decode(reseal(data))


def test_payloads_of_many_widths_cannot_pass_for_one_width() -> None:
    """Without the flag there must be offsets: sizes that would fit without them do not make it right."""
    data = bytearray(
        Batch.build(STREAM, [b"12345678", b"abcdefgh"], first=1, source="client", position=1).encode()
    )
    struct.pack_into("<H", data, 10, peek(data).flags & ~layout.PAYLOADS_FIXED)
    with pytest.raises(MalformedBatch, match="add up"):
        Batch.decode(reseal(data))


def test_each_flipped_bit_and_each_truncation_is_noticed() -> None:
    data = bytes(full_batch().encode())
    for i in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[i // 8] ^= 1 << i % 8
        with pytest.raises(MalformedBatch):
            Batch.decode(flipped)
    for size in range(len(data)):
        with pytest.raises(MalformedBatch):
            Batch.decode(data[:size])


def test_rows_are_bounded_apart_from_bytes() -> None:
    data = bytearray(Batch.build(STREAM, [b""], first=1).encode())
    struct.pack_into("<QI", data, 32, 1 << 31, 1 << 31)
    layout.seal_header(data)
    with pytest.raises(MalformedBatch, match="rows"):
        Batch.decode(data)


def test_peek_reads_the_header_alone() -> None:
    data = bytearray(full_batch().encode())
    data[-1] ^= 1
    assert peek(data).count == 3


def test_wide_tombstones_use_wide_columns() -> None:
    batch = Batch.build(
        STREAM, [b"", b"x"], first=1, seqs=[1 << 40, (1 << 40) + 1], ranges=[1 << 40, 1], kinds=[2, 0]
    )
    again = Batch.decode(batch.encode())
    assert again.ranges is not None
    assert (again.last, again.ranges.tolist()) == ((1 << 40) + 1, [1 << 40, 1])


def test_stream_names_are_bounded() -> None:
    assert stream_id("prices") != stream_id("price")
    with pytest.raises(LocalError, match="1 to 255"):
        stream_id("x" * 256)


def test_positions_parse_and_print() -> None:
    assert str(Position.parse("12:3")) == "12:3"
    assert Position.parse("12") == (12, 0)
    with pytest.raises(ValueError, match="sequence:index"):
        Position.parse("a:b")
