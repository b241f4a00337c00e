"""A kept batch does not keep the buffer that it came in."""

from __future__ import annotations

from qanat.events.batch import Batch
from qanat.events.compact import compact


def test_a_small_part_of_a_buffer_is_copied() -> None:
    batch = Batch.build(7, [b"payload"] * 3, first=5)
    buffer = bytearray(100_000)
    buffer[: batch.size] = batch.encode()
    kept = compact(Batch.decode(memoryview(buffer)[: batch.size]))
    assert kept.encode() == batch.encode()
    assert memoryview(kept.encode().obj).nbytes == batch.size
    assert compact(kept) is kept


def test_what_fills_its_buffer_is_left_there() -> None:
    batch = Batch.build(7, [bytes(1000)] * 3, first=5)
    buffer = bytearray(batch.size + 1000)
    buffer[: batch.size] = batch.encode()
    here = Batch.decode(memoryview(buffer)[: batch.size])
    assert compact(here) is here


def test_rows_of_a_larger_batch_stand_alone() -> None:
    batch = Batch.build(7, [bytes(1000)] * 30, first=5)
    part = compact(batch.slice(3, 5))
    assert (part.first, part.last, part.size) == (8, 9, part.encode().nbytes)
    assert part.size < batch.size
