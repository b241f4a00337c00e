"""Ctrl-C while Spark is in the process."""

import logging
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient  # type: ignore[import-untyped]
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from qanat.pipeline.session import keeping_interrupts, silence_py4j


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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Py4JNetworkError("reentrant call")])
def test_a_call_to_java_that_it_cuts_off_is_not_logged(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Connection:
        socket = None

        def send_command(self, command: str) -> str:
            raise error

        def close(self, reset: bool) -> None: ...

    monkeypatch.setattr(logging.getLogger(), "filters", [])
    client = GatewayClient()
    monkeypatch.setattr(client, "_get_connection", Connection)

    def call() -> None:
        try:
            client.send_command("jobs", retry=False)
        except KeyboardInterrupt:
            assert isinstance(error, KeyboardInterrupt)

    call()
    assert [record.name for record in caplog.records] == ["root"]  # so it would be
    caplog.clear()
    for _ in range(2):
        silence_py4j()
    call()
    assert caplog.records == []
    assert len(logging.getLogger().filters) == 1
    logging.getLogger().warning("somebody else's")
    logging.getLogger("qanat.archive").warning("ours")
    assert [record.name for record in caplog.records] == ["root", "qanat.archive"]
