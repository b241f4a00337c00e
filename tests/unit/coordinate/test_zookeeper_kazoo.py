"""What kazoo is not to do to the program around it."""

from __future__ import annotations

import random

import pytest
from kazoo.client import KazooClient
from kazoo.retry import ForceRetryError, KazooRetry, RetryFailedError

import qanat.coordinate.zookeeper.kazoo_handler  # noqa: F401, which sees to it


def test_the_program_s_generator_is_left_alone() -> None:
    def fail() -> None:
        raise ForceRetryError

    pauses: list[float] = []
    state = random.getstate()
    with pytest.raises(RetryFailedError):
        KazooRetry(max_tries=3, max_jitter=0.2, sleep_func=pauses.append)(fail)
    KazooClient("127.0.0.1:1,127.0.0.1:2")._connection._expand_client_hosts()
    assert random.getstate() == state
    assert len({round(pause, 9) for pause in pauses}) == 2
