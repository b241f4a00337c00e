"""Batches made to cost more than they are: right checksums, small bytes, and the most that decoding could be
led to allocate."""

import struct
import tracemalloc
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from qanat.events import attributes, encode, layout
from qanat.events.batch import FRAME_LIMIT, Batch, Kind, stream_id
from qanat.events.checksum import crc32c
from qanat.events.encode import prepare
from qanat.events.errors import MalformedBatch
from qanat.events.event import events
from qanat.events.join import concat
from qanat.events.layout import NAMES_LIMIT, ROWS_LIMIT
from qanat.events.verify import check_given

STREAM = stream_id("hostile")
NOTHING = np.zeros((ROWS_LIMIT, 0), np.uint8)
_STRING, _DICTIONARY = 1, 2


def constant(text: str, valid: bool = True) -> pa.Array:
    mask = None if valid else pa.py_buffer(bytes([0x7F]) + bytes([0xFF]) * (ROWS_LIMIT // 8 - 1))
    codes = pa.Array.from_buffers(pa.uint8(), ROWS_LIMIT, [mask, pa.py_buffer(bytes(ROWS_LIMIT))])
    return pa.DictionaryArray.from_arrays(codes, [text])


def one_text_in_all_rows() -> Batch:
    column = constant("x")
    return Batch.build(STREAM, NOTHING, attributes={f"{i:04}": column for i in range(4096)})


def one_long_text_in_all_rows() -> Batch:
    column = constant("x" * 5000)
    return Batch.build(STREAM, NOTHING, attributes={f"{i:04}": column for i in range(2000)})


def one_text_in_nearly_all_rows() -> Batch:
    column = constant("x", valid=False)
    return Batch.build(STREAM, NOTHING, attributes={f"{i:04}": column for i in range(100)})


def a_dictionary_larger_than_the_batch() -> Batch:
    """Sound offsets of entries that no row has."""
    column = pa.DictionaryArray.from_arrays(np.zeros(4, np.uint32), ["x"] * 1_500_000)
    parts = [column.indices.buffers()[1], column.dictionary.buffers()[1], column.dictionary.buffers()[2]]
    data = b"".join(
        _padded(bytes(part)[:size]) for part, size in zip(parts, (16, 6_000_004, 1_500_000), strict=True)
    )
    return with_section(section([("a", _STRING, _DICTIONARY | 4 << 4, len(data), 1_500_000)], data), 4)


def graves_in_all_rows() -> Batch:
    seqs = np.arange(2, 2 * ROWS_LIMIT + 2, 2, dtype=np.uint64)
    return Batch.build(
        STREAM,
        NOTHING,
        first=1,
        kinds=np.full(ROWS_LIMIT, Kind.TOMBSTONE, np.uint8),
        seqs=seqs,
        ranges=np.full(ROWS_LIMIT, 2, np.uint64),
    )


def names_that_are_wide_as_text() -> Batch:
    wide = "\U0001f600" + "x" * 500
    return Batch.build(STREAM, [b""], attributes=[{f"{wide}{i:04}": True for i in range(4000)}])


@pytest.mark.parametrize(
    "made",
    [
        one_text_in_all_rows,
        one_long_text_in_all_rows,
        one_text_in_nearly_all_rows,
        a_dictionary_larger_than_the_batch,
        graves_in_all_rows,
        names_that_are_wide_as_text,
    ],
)
def test_decoding_allocates_no_more_than_the_frame_limit(
    made: Callable[[], Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as lenient:
        lenient.setattr(encode, "CELLS_PER_BYTE", ROWS_LIMIT * 4096)
        data = bytes(made().encode())
    assert len(data) <= FRAME_LIMIT
    Batch.decode(data)  # what is made once for all batches is there now
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        batch = Batch.decode(data)
        peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - arrow
    finally:
        tracemalloc.stop()
    assert batch.count and peak <= FRAME_LIMIT


@pytest.mark.parametrize(
    "made",
    [
        lambda: Batch.build(STREAM, NOTHING),
        lambda: Batch.build(STREAM, NOTHING[:1000]),
        lambda: Batch.build(STREAM, NOTHING, attributes={"a": constant("x")}),
        lambda: Batch.build(STREAM, NOTHING[:8000], attributes={f"{i}": cut(8000) for i in range(200)}),
        lambda: Batch.build(STREAM, bytes_of(10_000, 1), attributes={f"{i}": cut(10_000) for i in range(40)}),
        lambda: Batch.build(STREAM, [b""] * 200, attributes=[{f"{i}": "" for i in range(100)}] * 200),
    ],
)
def test_what_we_encode_is_in_proportion_and_what_claims_more_is_not_taken(
    made: Callable[[], Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = made()
    check_given(honest)
    with monkeypatch.context() as lenient:
        lenient.setattr(encode, "CELLS_PER_BYTE", ROWS_LIMIT * 4096)
        claimed = made()
    assert claimed.count == honest.count and claimed.to_arrow().equals(honest.to_arrow())
    if claimed.size < honest.size:
        with pytest.raises(MalformedBatch, match="at most 8 values are left out for each byte"):
            check_given(Batch.decode(claimed.encode()))
    else:
        check_given(claimed)


def test_keys_without_a_byte_are_claimed_as_well() -> None:
    data = bytearray(Batch.build(STREAM, bytes_of(400, 2)).encode())
    struct.pack_into("<H", data, 10, layout.PAYLOADS_FIXED | layout.KEYS | layout.KEYS_FIXED)
    layout.seal_header(data)
    check_given(Batch.decode(data))
    rows = bytearray(Batch.build(STREAM, bytes_of(640, 1)).encode())[:80]
    struct.pack_into("<HI", rows, 10, layout.PAYLOADS_FIXED | layout.KEYS | layout.KEYS_FIXED, 80)
    struct.pack_into("<I", rows, 44, crc32c(b""))
    struct.pack_into("<I", rows, 56, 0)
    layout.seal_header(rows)
    with pytest.raises(MalformedBatch, match="640 rows of 2 columns"):
        check_given(Batch.decode(rows))


def test_more_texts_than_a_batch_holds_are_refused_before_they_are_written_out() -> None:
    column = constant("x")
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBatch, match="over the limit of a batch: publish it in parts"):
            Batch.build(STREAM, NOTHING, attributes={f"{i}": column for i in range(100)})
        assert tracemalloc.get_traced_memory()[1] < FRAME_LIMIT
    finally:
        tracemalloc.stop()


def test_few_rows_leave_the_texts_and_sources_of_the_others_behind() -> None:
    texts = [f"{i}" * 500 for i in range(1000)]
    codes = np.arange(2000) // 2
    column = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.uint32)), pa.array(texts))
    draft = prepare(STREAM, bytes_of(2000, 4), first=1, attributes={"a": column})
    draft = draft._replace(
        sources=[f"source {i}" for i in range(1000)],
        source_codes=codes,
        positions=(np.arange(2000, dtype=np.uint64), np.zeros(2000, np.uint32)),
    )
    whole = Batch.decode(encode.encode(draft))
    assert whole.size > 1_000_000
    few = Batch.decode(whole.take([3, 1998, 1999]).encode())
    assert few.size < 6000
    assert few.source_names == ["source 1", "source 999"]
    assert [few.attribute_row(i)["a"] for i in range(3)] == [texts[1], texts[999], texts[999]]
    mine = few.source_codes()
    assert mine is not None and mine.tolist() == [0, 1, 1]
    assert whole.slice(10, 12).encode().nbytes < 3000


@pytest.mark.parametrize("valid", [True, False])
def test_a_long_text_of_many_rows_is_never_written_out(valid: bool) -> None:
    """Whatever is done with the batch: its rows would take a thousand times as much as it."""
    texts = ["x" * 1_000_000, *map(str, range(600))]
    codes = pa.array([0] * 1000, pa.uint16(), mask=None if valid else np.arange(1000) % 7 == 0)
    column = pa.DictionaryArray.from_arrays(codes, texts)
    first = Batch.build(STREAM, [b"x"] * 1000, first=1, attributes={"a": column})
    second = Batch.build(STREAM, [b"x"] * 10, first=1001, attributes={"a": pa.array(["y"] * 10)})
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        assert first.size < 1_100_000
        assert first.take(np.arange(1000) % 5 > 0).size < 1_100_000
        joined = concat([first, second])
        assert joined.size < 1_100_000 and joined.count == 1010
        rows = [event.attributes for event in events(first)]
        assert rows[1] == {"a": texts[0]} and len(rows) == 1000
        assert tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before < 30_000_000
    finally:
        tracemalloc.stop()


def cut(count: int) -> pa.Array:
    return constant("x").slice(0, count)


def bytes_of(count: int, width: int) -> np.ndarray:
    return np.zeros((count, width), np.uint8)


def test_names_are_bounded_all_together() -> None:
    long = "x" * 60_000
    with pytest.raises(MalformedBatch, match=f"at most {NAMES_LIMIT}"):
        Batch.build(STREAM, [b""], attributes=[{f"{long}{i:04}": 1 for i in range(40)}])
    with pytest.raises(MalformedBatch, match="too many"):
        attributes.decode(memoryview(struct.pack("<II", 0, NAMES_LIMIT + 8) + bytes(NAMES_LIMIT + 8)), 1)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def section(
    columns: list[tuple[str, int, int, int, int]],
    data: bytes,
    moved: dict[int, tuple[int, int]] | None = None,
) -> bytes:
    """A section laid out by hand; `moved` changes by how much a column's name and data begin elsewhere."""
    names = [name.encode() for name, *_ in columns]
    blob = _padded(b"".join(names))
    at, name_at, entries = 8 + 24 * len(columns) + len(blob), 0, []
    for i, (name, (_, code, encoding, size, count)) in enumerate(zip(names, columns, strict=True)):
        name_move, move = (moved or {}).get(i, (0, 0))
        entries.append(
            struct.pack(
                "<IHBBIIII", name_at + name_move, len(name), code, encoding, at + move, size, count, 0
            )
        )
        at, name_at = at + size, name_at + len(name)
    return struct.pack("<II", len(columns), len(blob)) + b"".join(entries) + blob + data


def with_section(made: bytes, count: int) -> Batch:
    """A batch of `count` empty events with this section of attributes, its checksums right."""
    data = bytearray(Batch.build(STREAM, [b""] * count).encode()) + made
    struct.pack_into("<I", data, 12, len(data))
    struct.pack_into("<I", data, 44, crc32c(memoryview(data)[layout.HEADER_BYTES :]))
    struct.pack_into("<I", data, 68, len(made))
    layout.seal_header(data)
    return Batch.decode(data)


TWO = [("ab", 2, 0, 8, 0), ("cd", 2, 0, 8, 0)]


def test_columns_follow_each_other_without_gap_or_overlap() -> None:
    data = struct.pack("<qq", 1, 2)
    assert with_section(section(TWO, data), 1).attribute_row(0) == {"ab": 1, "cd": 2}
    for moved in ({1: (0, -8)}, {0: (0, 8)}, {1: (-1, 0)}, {0: (1, 0)}, {0: (0, 8), 1: (0, -8)}):
        with pytest.raises(MalformedBatch, match="begin where the one before"):
            with_section(section(TWO, data, moved), 1)
    with pytest.raises(MalformedBatch, match="left over"):
        with_section(section(TWO, data + bytes(8)), 1)
    with pytest.raises(MalformedBatch, match="past the end"):
        with_section(section(TWO, data[:8]), 1)
