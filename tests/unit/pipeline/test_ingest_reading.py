"""What a task reads is read ahead, in order, within a limit, and not beyond where it stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.waiting import wait_until

from qanat.pipeline.ingest.reading import ahead


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "qanat-reading"]


def test_everything_comes_in_order_and_then_the_thread_is_gone() -> None:
    assert list(ahead(iter(range(1, 1000)), 3)) == list(range(1, 1000))
    assert not readers()


def test_so_much_is_made_before_it_is_asked_for_and_no_more() -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for number in range(1, 100):
            made.append(number)
            yield number

    with closing(ahead(source(), 2)) as items:
        for taken in range(1, 6):
            assert next(items) == taken
            wait_until(lambda taken=taken: len(made) == taken + 2)  # type: ignore[misc]
    assert made == list(range(1, 8))
    assert not readers()


def test_a_failure_comes_behind_what_was_made_before_it() -> None:
    def source() -> Iterator[int]:
        yield from (1, 2, 3)
        raise OSError("the log is away")

    got: list[int] = []
    with pytest.raises(OSError, match="the log is away"), closing(ahead(source(), 8)) as items:
        got.extend(items)
    assert got == [1, 2, 3]
    assert not readers()
