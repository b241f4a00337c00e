"""The history over stream logs: what it promises to protocols, on a disk whose power is cut."""

from __future__ import annotations

import random

import pytest

from qanat.events.batch import Batch
from qanat.events.tombstones import tombstone
from qanat.log import LogConfig
from qanat.log.errors import DiskFailed, DiskFull
from qanat.protocols.history import HistoryGap
from qanat.serving.log_history import WIPING, LogHistory
from qanat.sim import SimDisk

STREAM = 7


def disk(seed: int = 1) -> SimDisk:
    return SimDisk(random.Random(seed), full=DiskFull, failed=DiskFailed)


def batch(count: int, position: int, first: int = 0) -> Batch:
    payloads = [f"{position + at}".encode() for at in range(count)]
    return Batch.build(STREAM, payloads, first=first, source="a", position=position)


def test_what_is_appended_counts_at_once_and_is_durable_after_sync() -> None:
    asked: list[int] = []
    history = LogHistory(disk(), "log", wants_sync=asked.append)
    assert history.append(batch(3, 1)) == (1, 3, 0)
    assert (history.counter(STREAM), history.durable(STREAM), asked) == (3, 0, [STREAM])
    assert [each.last for each in history.read(STREAM, 1, 1 << 20)] == [3]
    assert history.sync(STREAM) == 3
    assert history.durable(STREAM) == 3
    assert history.append(batch(3, 2)) == (4, 4, 2)
    assert history.streams() == [STREAM]


def test_in_memory_mode_everything_counts_as_durable() -> None:
    history = LogHistory(disk(), "log", lambda stream: LogConfig(mode="memory"))
    history.append(batch(3, 1))
    assert history.durable(STREAM) == 3


def test_what_was_synced_is_there_after_a_power_cut() -> None:
    for seed in range(20):
        power = disk(seed)
        history = LogHistory(power, "log")
        history.append(batch(3, 1))
        history.sync(STREAM)
        history.append(batch(3, 4))
        power.crash()
        again = LogHistory(power, "log")
        assert 3 <= again.counter(STREAM) <= 6
        assert again.positions(STREAM)["a"][0] == again.counter(STREAM)


def test_a_gap_is_refused_and_what_is_had_is_dropped() -> None:
    history = LogHistory(disk(), "log")
    history.append_numbered(batch(3, 1, first=1))
    history.append_numbered(batch(3, 2, first=2))
    assert history.counter(STREAM) == 4
    with pytest.raises(HistoryGap):
        history.append_numbered(batch(1, 9, first=9))


def test_events_behind_a_tombstone_that_is_had_are_stored_as_events() -> None:
    history = LogHistory(disk(), "log")
    history.append_numbered(tombstone(STREAM, 1, 4, 0))
    mixed = Batch.build(
        STREAM, [b"", b"five", b"six"], first=1, seqs=[4, 5, 6], ranges=[4, 1, 1], kinds=[2, 0, 0], span=6
    )
    history.append_numbered(mixed)
    history.sync(STREAM)
    last = history.read(STREAM, 5, 1 << 20)[-1]
    assert [last.payload(row) for row in range(last.count)] == [b"five", b"six"]


def test_a_reset_stream_is_empty_wherever_the_power_is_cut() -> None:
    for seed in range(20):
        power = disk(seed)
        history = LogHistory(power, "log")
        history.append(batch(3, 1))
        history.sync(STREAM)
        history.reset(STREAM)
        assert history.counter(STREAM) == 0
        assert history.positions(STREAM) == {}
        power.crash()
        assert LogHistory(power, "log").counter(STREAM) == 0


def test_a_wiping_that_was_interrupted_is_finished() -> None:
    power = disk()
    history = LogHistory(power, "log")
    history.append(batch(3, 1))
    history.sync(STREAM)
    folder = f"log/{STREAM:016x}"
    power.open(f"{folder}/{WIPING}")
    power.sync_folder(folder)
    power.remove(next(f"{folder}/{name}" for name in power.list(folder) if name.endswith(".seg")))
    power.sync_folder(folder)
    power.crash()
    again = LogHistory(power, "log")
    assert again.counter(STREAM) == 0
    assert again.append(batch(1, 1)) == (1, 1, 0)
