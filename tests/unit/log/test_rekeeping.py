"""A log that is kept in another way from now on: as if it had been opened so."""

from __future__ import annotations

import threading

import pytest
from tests.unit.log.collecting import STREAM, alive, collect, events, opened

from qanat.events.tombstones import gc_event
from qanat.log import LogConfig, StreamLog
from qanat.log.config import Policy
from qanat.log.crash_disk import CrashDisk
from qanat.log.errors import LogClosed
from qanat.log.rekeeping import TwoHistories, keep_as

POLICIES = [
    Policy(),
    Policy(by_key=True),
    Policy(keep_last=70),
    Policy(age_ms=50),
    Policy(by_key=True, keep_last=150, age_ms=120),
]


def filled(disk: CrashDisk, policy: Policy) -> StreamLog:
    log = opened(disk, policy=policy)
    for i in range(10):
        log.append(
            events(
                40, key=lambda k: b"%d" % (k % 7) if k % 3 else b"", time_us=lambda k: k * 1000, first=i * 40
            )
        )
        if i % 4 == 3:
            log.append(gc_event(STREAM, "same key", key=b"5", time_us=i * 40_000))
            log.append(gc_event(STREAM, "upto 15", time_us=i * 40_000))
    log.sync()
    return log


@pytest.mark.parametrize("old", POLICIES, ids=str)
@pytest.mark.parametrize("new", POLICIES, ids=str)
def test_a_new_policy_collects_what_it_would_in_a_log_that_was_opened_with_it(
    old: Policy, new: Policy
) -> None:
    changed, disk = filled(CrashDisk(), old), CrashDisk()
    keep_as(changed, LogConfig(policy=new, mode="interval"))
    filled(disk, old).close()
    anew = opened(disk, policy=new)
    for log in (changed, anew):
        log.append(events(5, key=lambda _: b"3", time_us=lambda k: 400_000 + k, first=400))
        log.sync()
        collect(log)
    assert alive(changed) == alive(anew)
    assert changed.config.policy == new


def test_events_that_come_while_a_new_policy_is_learnt_are_learnt_too() -> None:
    log, stop = filled(CrashDisk(), Policy()), threading.Event()

    def publish() -> None:
        while not stop.is_set() and log.next < 60_000:
            log.append(events(20, key=lambda _: b"one"))

    thread = threading.Thread(target=publish)
    thread.start()
    for policy in (Policy(by_key=True), Policy(), Policy(by_key=True)):
        keep_as(log, LogConfig(policy=policy, mode="interval"))
    stop.set()
    thread.join()
    collect(log)
    of_one = [seq for seq in alive(log) if seq > 410]
    assert of_one == [log.next - 1]


def test_retention_and_the_share_of_the_dead_change_at_once() -> None:
    log = opened()
    for i in range(40):
        log.append(events(50, first=i * 50))
    log.sync()
    log.collect()
    assert log.first == 1
    keep_as(log, LogConfig(retain_bytes=65_536, mode="interval", rewrite_dead_fraction=0.1))
    log.collect()
    assert log.first > 1
    assert log.config.rewrite_dead_fraction == 0.1
    assert log.config.segment_bytes == 64 * 1024, "what cannot change while it is open stays"


def test_what_is_in_memory_stays_there() -> None:
    log = opened(mode="memory")
    with pytest.raises(TwoHistories, match="from memory to always"):
        keep_as(log, LogConfig())
    assert log.config.mode == "memory"


def test_from_always_on_only_what_is_on_disk_is_readable() -> None:
    log = opened()
    log.append(events(10))
    assert log.readable == 10
    assert log.durable == 0
    keep_as(log, LogConfig(mode="always"))
    assert log.readable == log.durable == 10
    log.append(events(1))
    assert log.readable == 10


def test_a_closed_log_is_not_changed() -> None:
    log = opened()
    log.close()
    with pytest.raises(LogClosed):
        keep_as(log, LogConfig(policy=Policy(by_key=True)))
