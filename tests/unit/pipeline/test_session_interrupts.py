"""Ctrl-C while Spark is in the process."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from qanat.pipeline.session import keeping_interrupts


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    kept = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, kept)


def spark(*_: Any) -> None:
    """What Spark sets."""


def mine(*_: Any) -> None:
    """What a command sets."""


def test_a_command_that_knows_how_to_stop_goes_on_to_hear_of_it() -> None:
    signal.signal(signal.SIGINT, mine)
    with keeping_interrupts():
        signal.signal(signal.SIGINT, spark)
    assert signal.getsignal(signal.SIGINT) is mine


def test_without_one_spark_ends_its_jobs() -> None:
    for usual in (signal.default_int_handler, signal.SIG_IGN):
        signal.signal(signal.SIGINT, usual)
        with keeping_interrupts():
            signal.signal(signal.SIGINT, spark)
        assert signal.getsignal(signal.SIGINT) is spark
