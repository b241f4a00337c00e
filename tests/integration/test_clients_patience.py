"""Patience: clients wait for a server that is away, when they are made as well as later; and one that has
given up is never used again."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest
from tests.waiting import wait_until

from qanat.client import AsyncClient, Client, Unavailable
from qanat.events.errors import LocalError
from qanat.pipeline.source import clients


def test_a_client_that_is_made_while_the_server_restarts_waits_for_it_and_says_so(
    server_process: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server_process.start().stop()
    made: list[int] = []

    def late() -> None:
        with Client(server_process.url) as client:
            made.append(client.publish("s", b"after the restart"))

    with caplog.at_level(logging.WARNING, "qanat.client"):
        thread = threading.Thread(target=late)
        thread.start()
        wait_until(lambda: "waiting up to 30 s for a server at qanat://127.0.0.1" in caplog.text)
        assert "is the server running?" in caplog.text
    server_process.start()
    thread.join(60)
    assert made == [1]


def test_a_command_waits_for_the_server_as_well(server_process: Any) -> None:
    server_process.start().stop()
    command = [sys.executable, "-m", "qanat", "pub", "s", "--url", server_process.url, "--patience", "2m"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as done:
        assert done.stdin is not None and done.stderr is not None
        done.stdin.write("rain\n")
        done.stdin.close()
        assert done.stderr.readline().startswith("waiting up to 120 s for a server at qanat://127.0.0.1")
        server_process.start()
        rest = done.stderr.read()
        assert "found it after" in rest
        assert "published 1 events" in rest
    assert done.returncode == 0


def test_a_client_that_gave_up_is_never_used_again(server_process: Any) -> None:
    """As in a process of Spark's: a query, an outage that is longer than its patience, the next query."""
    server_process.start()
    with clients.client_of(server_process.url, patience=2) as first:
        first.publish("s", b"before")
    server_process.stop()
    wait_until(lambda: first.error is not None)
    assert isinstance(first.error, Unavailable)
    server_process.start()
    with clients.client_of(server_process.url, patience=2) as second:
        assert second.publish("s", b"after") == 2
        assert second is not first
    clients.forget(server_process.url)


def test_a_question_outlives_its_connection(server_process: Any) -> None:
    server_process.start()
    with Client(server_process.url) as client:
        server_process.stop()
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(client.ask("streams")))
        thread.start()
        server_process.start()
        thread.join(60)
        assert answers == [[]]


@pytest.mark.parametrize("patience", [-1, float("nan"), "soon", "1d", True, b"4", 1e9])
def test_patience_that_is_none_is_refused(patience: Any) -> None:
    with pytest.raises(LocalError, match=r"how many seconds to wait .* not "):
        AsyncClient(patience=patience)
