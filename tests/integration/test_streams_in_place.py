"""Subscribers on the server's own machine read large pieces of its log in place; whatever goes wrong with
that, they lose nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings, Subscription
from qanat.client.log_files import LogFiles
from qanat.log import StreamLog
from qanat.runtime.settings import TransportSettings
from qanat.wire.streams import LogFolder, Placed

EVENTS, WIDTH = 4_000, 1_000


def rows(first: int = 0) -> Any:
    """Events that tell their number, in all 4 MB."""
    data = np.zeros((EVENTS, WIDTH), np.uint8)
    data[:, :8] = np.arange(first, first + EVENTS, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return data


async def numbers(subscription: Subscription, count: int) -> list[int]:
    """Of the next `count` events, each of which must be where its number says."""
    found: list[int] = []
    while len(found) < count:
        for batch in await subscription.take():
            payloads = np.frombuffer(b"".join(batch.payloads().to_pylist()), "<u8")[:: WIDTH // 8]
            assert (batch.seqs() == payloads + 1).all()
            found += payloads.tolist()
    return found


def sent_bytes(server: Any) -> int:
    return sum(connection.bytes_out for connection in server.listener.connections)


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_large_pieces_do_not_go_through_the_socket(serving: Any, start: str) -> None:
    async def work() -> None:
        async with serving("log.mode=interval") as server, AsyncClient(server.url) as client:
            await client.publish_many("s", rows())
            subscription = await client.subscribe("s", start=start).confirmed()
            if start == "latest":
                await client.publish_many("s", rows(EVENTS))
            first = EVENTS if start == "latest" else 0
            assert await numbers(subscription, EVENTS) == list(range(first, first + EVENTS))
            assert sent_bytes(server) < EVENTS * WIDTH / 10

    run(work())


def over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the socket that everybody else has."""


def not_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)


def another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that shares the network and not the disk: its own server's folder has the same
    path."""
    of = LogFiles.of

    def elsewhere(found: LogFolder | None) -> LogFiles | None:
        return None if found is None else of(LogFolder(found.path, found.device, found.inode + 1))

    monkeypatch.setattr(LogFiles, "of", elsewhere)


def files_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: LogFiles, placed: Placed) -> memoryview:
        raise FileNotFoundError(placed.file)

    monkeypatch.setattr(LogFiles, "read", read)


def damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    read = LogFiles.read

    def other_bytes(self: LogFiles, placed: Placed) -> memoryview:
        data = bytearray(read(self, placed))
        data[len(data) // 2] ^= 1
        return memoryview(data)

    monkeypatch.setattr(LogFiles, "read", other_bytes)


@pytest.mark.parametrize("trouble", [over_tcp, not_to_be_read, another_folder, files_gone, damaged])
def test_otherwise_the_server_sends_the_bytes(
    serving: Any, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], None]
) -> None:
    async def work() -> None:
        transport = TransportSettings(short_ways=trouble is not over_tcp)
        async with (
            serving("log.mode=interval") as server,
            AsyncClient(server.url, transport=transport) as client,
        ):
            trouble(monkeypatch)
            await client.publish_many("s", rows())
            subscription = await client.subscribe("s", start="earliest").confirmed()
            assert await numbers(subscription, EVENTS) == list(range(EVENTS))
            await client.publish_many("s", rows(EVENTS))
            assert await numbers(subscription, EVENTS) == list(range(EVENTS, 2 * EVENTS))
            assert sent_bytes(server) > 2 * EVENTS * WIDTH

    run(work())


def test_pieces_that_were_not_taken_are_not_asked_for_again_after_a_break(serving: Any) -> None:
    """The connection breaks while pieces of the log wait to be taken."""

    async def work() -> None:
        async with serving("log.mode=interval") as server:
            client = AsyncClient(server.url)
            await client.ready()
            await client.publish_many("s", rows())
            subscription = await client.subscribe("s", start="earliest").confirmed()
            await until(lambda: subscription._arrived)
            for connection in list(server.listener.connections):
                connection.abort("reset", "cut by the test")
            await client.publish_many("s", rows(EVENTS))
            assert await numbers(subscription, 2 * EVENTS) == list(range(2 * EVENTS))
            await client.close()

    run(work())


def test_pieces_that_are_collected_before_they_are_read_come_as_what_is_left(serving: Any) -> None:
    """The log is rewritten under a subscriber that knows where things were."""

    async def work() -> None:
        async with (
            serving("log.mode=interval", "log.segment_bytes=1048576") as server,
            AsyncClient(server.url, settings=ClientSettings(batch_bytes=128 * 1024)) as client,
        ):
            await client.publish_many("s", rows())
            subscription = await client.subscribe("s", start="earliest").confirmed()
            await until(lambda: subscription._arrived)
            log: StreamLog = server.registry.get("s").log
            await client.publish("s", bytes(8), collects=f"upto {EVENTS - 1}")
            log.sync()
            log.collect(everything=True)
            left: list[int] = []
            while not left or left[-1] <= EVENTS:
                left += [int(seq) for batch in await subscription.take() for seq in batch.seqs()]
            assert left == sorted(set(left))
            assert left[-2:] == [EVENTS, EVENTS + 1]

    run(work())


def test_a_server_cannot_name_files_of_other_folders(tmp_path: Path) -> None:
    found = os.stat(tmp_path)
    files = LogFiles.of(LogFolder(str(tmp_path), found.st_dev, found.st_ino))
    assert files is not None
    with pytest.raises(Exception, match="no name of a log's file"):
        files.read(Placed(1, "../secret", 0, 1, 1))
