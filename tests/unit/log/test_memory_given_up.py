"""What a log gives up when memory is short, and what it never does."""

from pathlib import Path

from qanat.events.batch import Batch
from qanat.events.tombstones import gc_event
from qanat.log import LogConfig, StreamLog
from qanat.log.disk import OsDisk
from qanat.log.reader import Chunk, Truncated
from qanat.runtime.budget import MemoryBudget
from qanat.serving.stream_memory import _level_off, account_streams

KIB = 1024


def payloads(log: StreamLog, start: int = 1) -> list[bytes]:
    found: list[bytes] = []
    while start < log.next:
        chunk = log.read(start, KIB)
        assert isinstance(chunk, Chunk)
        found += [batch.payload(i) for batch in chunk.batches() for i in range(batch.count)]
        start = chunk.last + 1
    return found


def test_what_the_page_cache_has_is_given_up_and_read_from_there(tmp_path: Path) -> None:
    log = StreamLog.open(OsDisk(), str(tmp_path / "log"), 1, LogConfig(mode="interval"))
    said = [b"%d" % number * 100 for number in range(50)]
    for each in said[:25]:
        log.append(Batch.build(1, [each]))
    before = log.remembered_bytes
    log.forget()
    assert log.stats().tail_bytes == 0 < before - log.remembered_bytes
    for each in said[25:]:
        log.append(Batch.build(1, [each]))
    assert payloads(log) == said
    log.close()


def test_a_log_in_memory_drops_its_oldest_and_says_which(tmp_path: Path) -> None:
    config = LogConfig(mode="memory", segment_bytes=64 * KIB)
    log = StreamLog.open(OsDisk(), str(tmp_path / "log"), 1, config)
    for _ in range(100):
        log.append(Batch.build(1, [bytes(8 * KIB)]))
    assert log.in_memory_bytes > 800 * KIB
    log.keep_at_most(200 * KIB)
    assert log.in_memory_bytes <= 200 * KIB
    assert isinstance(log.read(1, KIB), Truncated)
    for _ in range(100):
        log.append(Batch.build(1, [bytes(8 * KIB)]))
    assert log.in_memory_bytes <= 300 * KIB  # the bound and a segment
    assert log.next == 201
    log.keep_at_most(None)
    for _ in range(100):
        log.append(Batch.build(1, [bytes(8 * KIB)]))
    assert log.in_memory_bytes > 800 * KIB
    log.close()


def test_keys_that_were_forgotten_are_hunted_for(tmp_path: Path) -> None:
    log = StreamLog.open(OsDisk(), str(tmp_path / "log"), 1, LogConfig(mode="interval"))
    log.append(gc_event(1, "same key", key=b"k"))
    for number in range(3):
        log.forget(keys=True)
        log.append(Batch.build(1, [b"%d" % number], keys=[b"k"]))
    log.append(gc_event(1, "same key", key=b"k"))
    log.sync()
    while log.collect(everything=True).more:
        pass
    assert log.stats().rows - log.stats().dead_rows == 1
    log.close()


def test_streams_in_memory_are_levelled_off_so_that_the_small_keep_all() -> None:
    assert _level_off([10, 20, 300], 90) == 60
    assert _level_off([100, 100, 100], 90) == 30
    assert _level_off([1, 2], 90) >= 2
    budget, used = 40 * KIB * KIB, [0]
    memory = MemoryBudget(budget, measure=lambda: used[0], code=lambda: 0)
    config = LogConfig(mode="memory", segment_bytes=64 * KIB)
    logs = [StreamLog.open(OsDisk(), f"log-{number}", number, config) for number in (1, 2)]
    for log, count in zip(logs, (2_000, 20), strict=True):
        for _ in range(count):
            log.append(Batch.build(log.stream, [bytes(8 * KIB)]))
    account_streams(memory, lambda: logs)
    used[0] = budget
    memory.look()
    assert sum(log.in_memory_bytes for log in logs) <= budget // 4
    assert logs[1].first == 1 and logs[0].first > 1
    for log in logs:
        log.close()
