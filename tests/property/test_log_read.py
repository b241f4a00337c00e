"""Reading from anywhere, with any limit, from the tail and from the disk, and looking for a time."""

from __future__ import annotations

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.events.batch import Batch, stream_id
from qanat.log import Chunk, LogConfig, OsDisk, StreamLog

STREAM = stream_id("read")
SIZES = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 900)), min_size=1, max_size=40)


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=SIZES,
    tail_bytes=st.sampled_from([0, 2000, 1 << 20]),
    reads=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 5000), st.integers(0, 300)), max_size=30),
    synced=st.integers(0, 40),
)
def test_every_read_is_a_run_of_whole_batches_that_covers_its_start(
    sizes: list[tuple[int, int]], tail_bytes: int, reads: list[tuple[int, int, int]], synced: int
) -> None:
    config = LogConfig(segment_bytes=64 * 1024, index_stride_bytes=1024, tail_bytes=tail_bytes)
    with tempfile.TemporaryDirectory() as folder:
        log = StreamLog.open(OsDisk(), folder, STREAM, config)
        published: list[bytes] = []
        bounds = [0]
        for i, (count, size) in enumerate(sizes):
            payloads = [b"%d/%d" % (i, j) + bytes(size) for j in range(count)]
            log.append(Batch.build(STREAM, payloads, time_us=i))
            published += payloads
            bounds.append(len(published))
            if i == synced:
                log.sync()
        for start, max_bytes, upto in reads:
            limit = min(upto, log.next - 1)
            chunk = log.read(start, max_bytes, upto=upto)
            assert isinstance(chunk, Chunk)
            ends = [bound for bound in bounds if bound <= limit]
            if not ends or start > ends[-1]:
                assert not chunk.data
                continue
            assert chunk.first <= start <= chunk.last <= limit
            assert chunk.first - 1 in bounds and chunk.last in bounds
            got = [payload for batch in chunk.batches() for payload in batch.payloads().to_pylist()]
            assert got == published[chunk.first - 1 : chunk.last]
            one_batch = sum(chunk.first <= bound <= chunk.last for bound in bounds) == 1
            assert chunk.size <= max_bytes or one_batch
        if log.durable:
            default = log.read(1, 1 << 30)
            assert isinstance(default, Chunk) and default.last <= log.durable
        log.close()


@settings(max_examples=examples(60), deadline=None)
@given(
    times=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=40),
    wanted=st.integers(-1, 52),
    columns=st.booleans(),
)
def test_seeking_a_time_finds_the_first_event_at_or_after_it(
    times: list[list[int]], wanted: int, columns: bool
) -> None:
    config = LogConfig(mode="interval", segment_bytes=64 * 1024, index_stride_bytes=1024)
    with tempfile.TemporaryDirectory() as folder:
        log = StreamLog.open(OsDisk(), folder, STREAM, config)
        flat: list[int] = []
        for group in times:
            if columns:
                log.append(Batch.build(STREAM, [bytes(2000)] * len(group), times=group))
                flat += group
            else:
                log.append(Batch.build(STREAM, [bytes(2000)] * len(group), time_us=group[0]))
                flat += [group[0]] * len(group)
        expected = next((i + 1 for i, time_us in enumerate(flat) if time_us >= wanted), len(flat) + 1)
        assert log.seek_time(wanted) == expected
        log.close()
        again = StreamLog.open(OsDisk(), folder, STREAM, config)
        assert again.seek_time(wanted) == expected
        again.close()
