"""Subscribers of a real server who have fallen behind: they travel together, commands show and change it, and
a kill costs nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.servers.stream_server import ServerProcess
from tests.waiting import run

from qanat.cli.main import main
from qanat.client import AsyncClient, ClientSettings, Event

EVENTS, SIZE = 160, 64 * 1024
QUICK = ("--set", "caravans.plan_ms=20.0")


class Operator:
    """Types commands; in a thread, for the clients go on meanwhile."""

    def __init__(self, server: ServerProcess, capture: pytest.CaptureFixture[str]) -> None:
        self._server, self._capture = server, capture

    async def do(self, *words: str, code: int = 0) -> str:
        self._capture.readouterr()
        assert await asyncio.to_thread(main, [*words, "--server", str(self._server.data)]) == code
        out, err = self._capture.readouterr()
        return str(out or err)

    async def caravans(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.do("caravans", "--json", *words))
        return found["streams"]["s"]

    async def trailing(self) -> list[list[str]]:
        """The clients of each caravan behind the edge, once they have what they take."""
        found = await self.caravans()
        behind = [one for one in found["caravans"] if not one["lead"]]
        if any(not one["pace"].startswith("it waits") for one in behind):
            return []
        return sorted([name.partition("/")[0] for name in one["subscribers"]] for one in behind)


async def taken(events: AsyncIterator[Event], count: int) -> list[int]:
    return [(await anext(events)).seq for _ in range(count)]


@pytest.mark.paper("W7")
def test_those_behind_travel_together_and_an_operator_may_decide_otherwise(
    server_process: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    server = server_process.start(*QUICK)
    operator = Operator(server, capsys)
    names = ("a", "b", "c")

    async def scenario() -> None:
        async with AsyncExitStack() as stack, AsyncClient(server.url) as publisher:
            await publisher.publish_many("s", [b"%08d" % number * (SIZE // 8) for number in range(EVENTS)])
            settings = ClientSettings(in_place=False)
            clients = [
                await stack.enter_async_context(AsyncClient(server.url, name=name, settings=settings))
                for name in names
            ]
            streams = [aiter(client.subscribe("s", start="earliest")) for client in clients]
            while await operator.trailing() != [["a", "b", "c"]]:
                await asyncio.sleep(0.02)
            shown = await operator.do("caravans")
            assert "it waits: no subscriber aboard takes more" in shown
            assert "the live edge" in shown
            assert "split" in shown
            told = await operator.do("move", "b", "--company", "night")
            assert "company night shares a caravan: b" in told
            assert "company night: b" in await operator.do("caravans", "--stream", "s")
            assert "caravans_max is 3; the file says 8" in await operator.do(
                "caravans", "--set", "caravans_max=3"
            )
            assert "caravans_max allows 3" in await operator.do("move", "c", "--company", "day", code=1)
            assert "must be at least 2" in await operator.do("caravans", "--set", "caravans_max=1", code=1)
            got = await asyncio.gather(*(taken(one, EVENTS // 2) for one in streams))
            assert (await operator.caravans())["read_bytes"] < 2.2 * EVENTS * SIZE, "two readers"
            await operator.do("move", "b", "--release")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start, *QUICK)
            rest = await asyncio.gather(*(taken(one, EVENTS - EVENTS // 2) for one in streams))
            for before, after in zip(got, rest, strict=True):
                assert before + after == list(range(1, EVENTS + 1))

    run(scenario())
