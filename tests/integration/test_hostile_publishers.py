"""A publisher that is wrong, by fault or on purpose, costs itself only."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.hostile import Peer
from tests.servers.stream_server import ServerProcess

from qanat.client import AsyncClient
from qanat.events.batch import Batch, stream_id
from qanat.events.errors import QanatError
from qanat.wire.streams import (
    OPEN,
    PUBLISH,
    SUBSCRIBE,
    Open,
    Opened,
    Publish,
    Refused,
    Stored,
)

STREAM = "shared"


def batch(source: str = "", *, sequence: int = 0, dense: bool = True, **columns: Any) -> Batch:
    position: dict[str, Any] = {}
    if source:
        sparse = np.array([sequence], np.uint64), np.array([0], np.uint32)
        position = {"source": source} | ({"position": sequence} if dense else {"positions": sparse})
    columns = {"time_us": time.time_ns() // 1000} | columns
    return Batch.build(stream_id(STREAM), [b"x"], **columns, **position)


async def publish(peer: Peer, number: int, what: Batch) -> Any:
    return await peer.ask(PUBLISH, Publish(number), [what.encode()])


def test_nobody_publishes_under_another_s_source_unheard(tmp_path: Path) -> None:
    """The one is refused; and if it insists the other is told, instead of taking its events for stored."""

    async def main() -> None:
        async with AsyncClient(server.url, name="victim") as client:
            for _ in range(5):
                await client.publish(STREAM, b"mine")
            hostile = await Peer.connect(server.url)
            for sequence, dense in ((1 << 62, False), (6, True), (6, False)):
                refused = await publish(hostile, sequence, batch("victim", sequence=sequence, dense=dense))
                assert isinstance(refused, Refused) and refused.code == "source_taken"
            await client.publish(STREAM, b"mine")
            opened = await hostile.ask(OPEN, Open(1, STREAM, "victim"))
            assert isinstance(opened, Opened) and opened.position == 6
            refused = await publish(hostile, 2, batch("victim", sequence=1 << 62, dense=False))
            assert isinstance(refused, Refused) and refused.code == "position_leap"
            await hostile.close()
            assert await client.publish(STREAM, b"mine") == 7
            hostile = await Peer.connect(server.url)
            assert isinstance(await hostile.ask(OPEN, Open(1, STREAM, "victim")), Opened)
            assert isinstance(await publish(hostile, 2, batch("victim", sequence=8)), Stored)
            with pytest.raises(QanatError, match="another client publishes under source 'victim' now"):
                await client.publish(STREAM, b"mine")
            await hostile.close()

    server = ServerProcess(tmp_path).start()
    try:
        asyncio.run(main())
    finally:
        server.end()


def test_who_was_passed_by_is_told_though_the_other_has_left_again(tmp_path: Path) -> None:
    """Under the positions that another used up, events of its own would pass for repetitions."""

    async def attack(source: str) -> None:
        hostile = await Peer.connect(server.url)
        assert isinstance(await hostile.ask(OPEN, Open(1, STREAM, source)), Opened)
        assert isinstance(await publish(hostile, 2, batch(source, sequence=1 << 55, dense=False)), Stored)
        await hostile.close()

    async def main() -> None:
        async with (
            AsyncClient(server.url, name="busy") as busy,
            AsyncClient(server.url, name="idle") as idle,
            AsyncClient(server.url, name="away") as away,
        ):
            assert [await client.publish(STREAM, b"mine") for client in (busy, away)] == [1, 2]
            await attack("busy")
            with pytest.raises(QanatError, match="another client publishes under source 'busy' now"):
                await busy.publish(STREAM, b"mine")
            assert await idle.stored(STREAM) == 0
            await attack("idle")
            assert await idle.publish(STREAM, b"mine") == 5
            os.kill(server.pid, signal.SIGSTOP)
            unanswered = asyncio.ensure_future(away.publish(STREAM, b"mine"))
            await asyncio.sleep(0.1)
            server.kill()
            server.start()
            attacking = threading.Thread(target=lambda: asyncio.run(attack("away")))
            attacking.start()
            attacking.join()  # nobody else comes back before
            with pytest.raises(QanatError, match="under source 'away' while this one was away") as caught:
                await unanswered
            assert not caught.value.definite
            assert await away.publish(STREAM, b"mine") == 7

    server = ServerProcess(tmp_path).start()
    try:
        asyncio.run(main())
    finally:
        server.end()


def test_ghosts_dates_and_numbers_that_cannot_be_are_refused_under_their_request(tmp_path: Path) -> None:
    async def main() -> None:
        peer = await Peer.connect(server.url)
        assert isinstance(await peer.ask(OPEN, Open(1, STREAM)), Opened)
        now_us = time.time_ns() // 1000
        ghost = Batch.build(stream_id(STREAM), (3, 10), ghost=True, time_us=now_us)
        for number, (what, code) in enumerate(
            (
                (ghost, "malformed_batch"),
                (batch(time_us=now_us + 2 * 86_400_000_000), "time_ahead"),
                (batch(time_us=-(1 << 63)), "time_ahead"),
                (batch("lsn", sequence=(1 << 63) + 1, dense=False), "position_leap"),
            )
        ):
            refused = await publish(peer, number, what)
            assert isinstance(refused, Refused)
            assert (refused.request, refused.code, refused.definite) == (number, code, True)
        refused = await peer.ask(SUBSCRIBE, {"subscription": 9, "stream": STREAM, "start": -(1 << 62)})
        assert isinstance(refused, Refused) and (refused.request, refused.code) == (9, "bad_request")
        refused = await peer.ask(OPEN, Open(10, "a\nb"))
        assert isinstance(refused, Refused) and "control characters" in refused.message
        assert isinstance(await publish(peer, 11, batch()), Stored)
        await peer.close()

    server = ServerProcess(tmp_path).start()
    try:
        asyncio.run(main())
    finally:
        server.end()
