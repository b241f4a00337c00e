"""Any columns survive encoding, slicing, taking and joining; any bytes are either a batch or refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events import layout
from qanat.events.batch import HEADER_BYTES, Batch, decode_all
from qanat.events.checksum import crc32c
from qanat.events.errors import MalformedBatch
from qanat.events.join import concat

VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
)
ROWS = st.lists(
    st.tuples(
        st.binary(max_size=12),
        st.binary(max_size=4),
        st.integers(-(1 << 62), 1 << 62),
        st.dictionaries(st.sampled_from(["a", "b", "#S", "naïve"]), VALUES, max_size=3),
    ),
    min_size=1,
    max_size=12,
)


def build(rows: list[Any], first: int) -> Batch:
    payloads, keys, times, attributes = (list(column) for column in zip(*rows, strict=True))
    return Batch.build(1, payloads, first=first, keys=keys, times=times, attributes=attributes)


def rows_of(batch: Batch) -> list[Any]:
    times = batch.times().tolist()
    return [(batch.payload(i), batch.key(i), times[i], batch.attribute_row(i)) for i in range(batch.count)]


@given(ROWS, st.integers(1, 1 << 40), st.data())
def test_rows_survive(rows: list[Any], first: int, data: st.DataObject) -> None:
    batch = Batch.decode(bytes(build(rows, first).encode()))
    assert rows_of(batch) == rows
    i = data.draw(st.integers(0, len(rows)))
    j = data.draw(st.integers(i, len(rows)))
    part = batch.slice(i, j)
    assert rows_of(Batch.decode(bytes(part.encode()))) == rows[i:j]
    assert (part.first, part.last) == (first + i, first + j - 1)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    taken = Batch.decode(bytes(batch.take(mask).encode()))
    assert rows_of(taken) == [row for row, keep in zip(rows, mask, strict=True) if keep]
    assert taken.seqs().tolist() == (first + np.flatnonzero(mask)).tolist()
    assert (taken.first, taken.last) == (batch.first, batch.last)
    cut = data.draw(st.integers(0, len(rows)))
    assert rows_of(concat([batch.slice(0, cut), batch.slice(cut, len(rows))])) == rows


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedBatch):
        list(decode_all(data or b"x"))


@given(ROWS, st.data())
def test_damaged_bodies_with_right_checksums_never_crash(rows: list[Any], data: st.DataObject) -> None:
    """Whoever makes a batch may make its checksums right as well: the columns themselves must be checked."""
    encoded = bytearray(build(rows, 1).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(8, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    encoded[44:48] = crc32c(memoryview(encoded)[HEADER_BYTES:]).to_bytes(4, "little")
    layout.seal_header(encoded)
    try:
        batch = Batch.decode(encoded)
    except MalformedBatch:
        return
    assert len(rows_of(batch)) == batch.count
    assert batch.to_arrow().num_rows == batch.count
