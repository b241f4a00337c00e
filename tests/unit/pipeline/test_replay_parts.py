"""Parts of a replay: the rate limit, who has what comes next, and batches made of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.events.batch import Batch, stream_id
from qanat.events.errors import LocalError
from qanat.events.tombstones import tombstone
from qanat.pipeline.archive.manifest import DataFile, Manifest, Range
from qanat.pipeline.columns import ARROW, arrow_of
from qanat.pipeline.replay.bucket import LONGEST_S, Bucket
from qanat.pipeline.replay.handover import Archive, Gone, Server, Wait, choose, earliest
from qanat.pipeline.replay.row_groups import batches_of
from qanat.wire.streams import Seen

pytestmark = pytest.mark.paper("D6")


def data_file(first: int, last: int) -> DataFile:
    about: dict[str, Any] = {"rows": 1, "bytes": 1, "checksum": "", "min_time_us": 0, "max_time_us": 0}
    return DataFile(path=f"day=2026-11-16/{first}", first=first, last=last, **about)


MANIFEST = Manifest(stream="s", files=(data_file(10, 49), data_file(60, 99)), lost=(Range(50, 59),))


def seen(first: int, readable: int) -> Seen:
    return Seen(1, first, first, readable, readable)


@pytest.mark.parametrize(
    ("first", "readable", "at", "answer"),
    [
        (80, 120, 10, Archive(49)),
        (1, 120, 10, Archive(49)),  # both have it, and much is left: the server is spared
        (1, 120, 45, Server()),  # both have it, and little is left
        (46, 120, 45, Archive(49)),
        (1, 120, 50, Server()),
        (80, 120, 50, Gone(Range(50, 59))),
        (55, 120, 50, Gone(Range(50, 54))),
        (80, 120, 99, Server()),
        (120, 130, 99, Archive(99)),
        (120, 130, 100, Gone(Range(100, 119))),
        (120, 130, 3, Gone(Range(3, 9))),
        (120, 130, 131, Server()),
        (120, 130, 132, Wait()),
        (1, 70, 95, Archive(99)),  # a region that is behind the archive
        (1, 70, 100, Wait()),
    ],
)
def test_who_has_what_comes_next(first: int, readable: int, at: int, answer: object) -> None:
    assert choose(MANIFEST, seen(first, readable), at, 5) == answer


def test_the_earliest_is_who_goes_back_furthest() -> None:
    assert earliest(MANIFEST, seen(5, 9)) == 5
    assert earliest(MANIFEST, seen(50, 90)) == 10
    assert earliest(Manifest(stream="s"), seen(50, 90)) == 50


def passed(bucket: Bucket, sizes: list[int], start: float = 0.0) -> list[float]:
    """When each of these could be taken, by a clock of our own."""
    now, times = start, []
    for size in sizes:
        while delay := bucket.delay(now):
            assert delay <= LONGEST_S
            now += delay
        bucket.take(size, now)
        times.append(now)
    return times


def test_no_more_passes_than_the_rate_allows() -> None:
    sizes = [300, 5000, 1, 1, 700] * 40
    times = passed(Bucket(1000, 0.0), sizes)
    for i in range(1, len(times)):
        assert sum(sizes[:i]) <= 1000 * times[i] + 2
    assert times[-1] <= sum(sizes) / 1000 + LONGEST_S, "and not much less"


def test_a_pause_is_not_made_up_for() -> None:
    bucket = Bucket(1000, 0.0)
    times = passed(bucket, [100] * 50, start=1000.0)
    assert times[-1] >= 1000 + 49 * 0.1 - 2 * LONGEST_S - 1e-6


def test_a_rate_may_be_changed_and_taken_away() -> None:
    bucket = Bucket(0, 0.0)
    assert passed(bucket, [10**9] * 3) == [0.0, 0.0, 0.0]
    bucket.set_rate(100, 0.0)
    assert passed(bucket, [50, 50, 50])[-1] == pytest.approx(1.0, abs=0.05)
    bucket.set_rate(0, 1.0)
    assert bucket.delay(1.0) == 0
    with pytest.raises(LocalError, match="less than nothing"):
        bucket.set_rate(-1, 0.0)


def test_rows_become_batches_of_their_size_whatever_they_are() -> None:
    """With and without a source, tombstones between, some of them huge; what comes out is what went in."""
    stream, parts, first = stream_id("s"), [], 5
    for i in range(30):
        size = 3_000_000 if i % 11 == 0 else 10 * i
        batch = Batch.build(
            stream,
            [b"x" * size] * 3,
            first=first,
            time_us=i,
            keys=[b"k"] * 3 if i % 3 else None,
            source="a" if i % 4 else None,
            position=1 if i % 4 else None,
        )
        grave = tombstone(stream, first + 3, first + 3 + i, i)
        parts += [batch, grave]
        first += 4 + i
    table = pa.Table.from_batches([arrow_of("s", part) for part in parts], ARROW)
    batches = list(batches_of(table, "s", 5, 100_000))
    assert [batch.first for batch in batches] == [5] + [batch.last + 1 for batch in batches[:-1]]
    assert batches[-1].last == first - 1
    assert max(batch.size for batch in batches) < 12_000_000 and len(batches) < 100
    assert np.concatenate([batch.seqs() for batch in batches]).tolist() == table["seq"].to_pylist()
    again = pa.Table.from_batches([arrow_of("s", batch) for batch in batches], ARROW)
    assert again.equals(table)
