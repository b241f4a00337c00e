"""`qanat serve` is sent SIGHUP: what its configuration now says of connections holds for new ones, and for
those that are there."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.listening import RawPeer
from tests.waiting import run

from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.wire.control import Identity, Refused
from qanat.wire.frame import FrameType


def test_sighup_changes_limits_and_heartbeats(server_process: Any, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"

    def say(connections: int, misses: int) -> None:
        config.write_text(
            f"[transport]\nmax_connections = {connections}\nheartbeat_ms = 50\nheartbeat_misses = {misses}\n"
        )

    say(2, 1_000_000)
    server_process.start("--config", str(config))

    async def connect(number: int) -> Connection:
        return await dial(server_process.url, Identity(f"client-{number}", role="client"), {})

    async def work() -> None:
        answering = await connect(1)
        dumb = RawPeer(SimpleNamespace(address=("127.0.0.1", server_process.port)))  # type: ignore[arg-type]
        assert (await dumb.hello()) is not None
        assert (await dumb.frame()).type == FrameType.PING  # type: ignore[union-attr]
        with pytest.raises(Refused, match="2 connections"):
            await connect(2)

        say(3, 1_000_000)
        os.kill(server_process.pid, signal.SIGHUP)
        found: list[Connection] = []
        while not found:
            with suppress(Refused):
                found.append(await connect(3))

        say(3, 2)
        os.kill(server_process.pid, signal.SIGHUP)
        await dumb.ended()  # it was there before, and never answered a heartbeat
        for connection in (answering, *found):
            connection.close()

    run(work())
