"""Whom a publisher waits for, in a sentence; said after a second, once, and when it goes on."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.servers.stream_server import ServerProcess
from tests.waiting import wait_until

from qanat.cli import publish_watch
from qanat.cli.publish_watch import PublishWatch, alone, in_region
from qanat.client import Client

PLACE = {
    "region": "eu",
    "replicas": {"eu/proxy-1": "a", "eu/proxy-2": "b"},
    "streams": {"orders": "eu"},
}


def status(*, durable: int = 10, next_: int = 11, **chain: Any) -> dict[str, Any]:
    stream = {"stream": "orders", "durable": durable, "next": next_, "durability": "always"}
    usual = {
        "epoch": 3,
        "head": "eu/proxy-1",
        "replicas": ["eu/proxy-1", "eu/proxy-2"],
        "joining": "",
        "waits": "",
    }
    return {"chain": usual | chain, "streams": [stream]}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            {"eu/proxy-1": status(), "eu/proxy-2": status()},
            "the chain eu/proxy-1 → eu/proxy-2 of region eu to acknowledge",
        ),
        ({"eu/proxy-1": status(joining="eu/proxy-3"), "eu/proxy-2": status()}, "eu/proxy-3 joins it"),
        ({"eu/proxy-1": status()}, "eu/proxy-2 of the chain eu/proxy-1 → eu/proxy-2: it does not answer"),
        (
            {"eu/proxy-1": status(next_=16), "eu/proxy-2": status()},
            "eu/proxy-1 of the chain eu/proxy-1 → eu/proxy-2, which has not stored the last 5 events",
        ),
        (
            {"eu/proxy-1": status(next_=16, durable=15), "eu/proxy-2": status()},
            (
                "eu/proxy-2 of the chain eu/proxy-1 → eu/proxy-2, which has not stored the last 5 events: its"
                " disk is slow or full"
            ),
        ),
        (
            {"eu/proxy-2": status(head="", replicas=[])},
            "a head: region eu has none now; eu/proxy-1 does not answer",
        ),
        ({}, "a head: region eu has none now; eu/proxy-1, eu/proxy-2 do not answer"),
        (
            {"eu/proxy-2": status(waits="the chain of eu waits for eu/proxy-1")},
            "region eu: the chain of eu waits for eu/proxy-1",
        ),
        (
            {"eu/proxy-1": status() | {"damaged": "stream 'orders' is damaged"}, "eu/proxy-2": status()},
            "eu/proxy-1: stream 'orders' is damaged",
        ),
    ],
)
def test_in_a_region(told: dict[str, Any], said: str) -> None:
    assert said in in_region(PLACE, told, "orders")


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (
            {"failed": "the disk failed", "next": 1, "durable": 0, "durability": "always"},
            "whose stream has stopped: the disk failed",
        ),
        ({"failed": "", "next": 11, "durable": 4, "durability": "always"}, "has not synced 6 events yet"),
        (
            {"failed": "", "next": 11, "durable": 4, "durability": "interval"},
            "which reads no faster than it stores",
        ),
    ],
)
def test_at_a_server_alone(stream: dict[str, Any], said: str) -> None:
    assert said in alone("qanat://there:7411", stream)


def test_it_is_said_once_for_each_that_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_watch, "_AFTER_S", 0.01)
    monkeypatch.setattr(publish_watch, "_AGAIN_S", 0.01)
    monkeypatch.setattr(publish_watch, "_LOOK_S", 0.01)
    words, asked = io.StringIO(), [0]

    def why(url: str, stream: str) -> str:
        asked[0] += 1
        return "a" if asked[0] < 5 else "b"

    with PublishWatch("u", "s", words, why) as watch:
        with watch.publishing():
            wait_until(lambda: asked[0] > 10)
        with watch.publishing():
            pass
    told = words.getvalue().splitlines()
    assert told[:2] == ["qanat: waiting for a", "qanat: waiting for b"]
    assert told[2].startswith("qanat: publishing continues after ")
    assert len(told) == 3


def test_what_ends_with_an_error_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_watch, "_AFTER_S", 0.01)
    words, asked = io.StringIO(), threading.Event()

    def why(url: str, stream: str) -> str:
        asked.set()
        return "a"

    with PublishWatch("u", "s", words, why) as watch, pytest.raises(ZeroDivisionError), watch.publishing():
        wait_until(lambda: "waiting" in words.getvalue())
        raise ZeroDivisionError
    assert words.getvalue() == "qanat: waiting for a\n"


@pytest.mark.slow
def test_pub_says_that_a_server_that_stands_still_is_waited_for_and_that_it_goes_on(tmp_path: Path) -> None:
    import os
    import signal

    server = ServerProcess(tmp_path / "data")
    try:
        url = server.start().url
        command = [sys.executable, "-m", "qanat", "pub", "orders", "--url", url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as pub:
            assert pub.stdin is not None
            assert pub.stderr is not None
            pub.stdin.write("1\n")
            pub.stdin.flush()
            with Client(url) as client:
                wait_until(lambda: [each["next"] for each in client.ask("streams")] == [2])
            os.kill(server.pid, signal.SIGSTOP)
            pub.stdin.write("2\n")
            pub.stdin.close()
            stands_still = f"waiting for {url}, which accepts connections and does not answer"
            while stands_still not in (
                line := pub.stderr.readline()
            ):  # on a busy machine it may have waited for something before
                assert line, "it said nothing of the server"
            os.kill(server.pid, signal.SIGCONT)
            said = pub.stderr.readlines()
            assert pub.wait() == 0
    finally:
        server.end()
    assert any("publishing continues after" in line for line in said)
    assert said[-1].startswith("published 2 events")
