"""Pauses between dials."""

import random

from qanat.runtime.backoff import Backoff


def test_doubles_up_to_the_limit_with_jitter() -> None:
    backoff = Backoff(10, 1000, random.Random(3))
    pauses = [backoff.next_ms() for _ in range(200)]
    for i, pause in enumerate(pauses):
        full = min(10 * 2**i, 1000)
        assert full / 2 <= pause <= full
    assert len(set(pauses)) > 190


def test_seeded_and_reset() -> None:
    one, two = (Backoff(10, 1000, random.Random(7)) for _ in range(2))
    assert [one.next_ms() for _ in range(9)] == [two.next_ms() for _ in range(9)]
    one.reset()
    assert one.next_ms() <= 10


def test_other_pauses_hold_from_the_next_failure_on() -> None:
    backoff = Backoff(10, 1000, random.Random(7))
    for _ in range(5):
        backoff.next_ms()
    backoff.reload(1, 20)
    assert 10 <= backoff.next_ms() <= 20
