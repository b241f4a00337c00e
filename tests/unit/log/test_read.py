"""What `read` gives is where the bytes lie: nothing is copied, neither from the tail in memory nor from a
file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qanat.events.batch import Batch, stream_id
from qanat.log import Chunk, LogConfig, OsDisk, StreamLog

STREAM = stream_id("read")


def spans(chunk: object) -> list[tuple[int, int]]:
    """(address, bytes) of each piece."""
    assert isinstance(chunk, Chunk)
    arrays = [np.frombuffer(part, np.uint8) for part in chunk.data]
    return [(int(array.ctypes.data), len(array)) for array in arrays]


@pytest.mark.parametrize("tail_bytes", [8 << 20, 0], ids=["from memory", "from a file"])
def test_two_reads_are_views_of_the_same_memory(tmp_path: Path, tail_bytes: int) -> None:
    log = StreamLog.open(OsDisk(), str(tmp_path / "log"), STREAM, LogConfig(tail_bytes=tail_bytes))
    for i in range(10):
        log.append(Batch.build(STREAM, [bytes([i]) * 1000] * 10))
    log.sync()
    whole, again = log.read(1, 1 << 20), log.read(1, 1 << 20)
    assert spans(whole) == spans(again)
    assert sum(size for _, size in spans(whole)) > 100_000
    later = log.read(51, 1 << 20)
    (begin, size), (inside, rest) = spans(whole)[-1], spans(later)[-1]
    assert begin + size == inside + rest  # a part of it is the same bytes, too
    *_, last = later.batches()  # type: ignore[union-attr]
    assert begin < last.payloads().buffers()[1].address < begin + size  # and what Arrow sees of a batch
    log.close()
