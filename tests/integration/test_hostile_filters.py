"""Filters and predicates that take long hold up those who wrote them: what others say meanwhile is answered
before."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.hostile import Peer
from tests.servers.stream_server import ServerProcess
from tests.waiting import until

from qanat.client import AsyncClient
from qanat.events.batch import Batch, Kind, stream_id
from qanat.wire.streams import (
    EVENTS,
    OPEN,
    PUBLISH,
    STORED,
    SUBSCRIBE,
    SUBSCRIBED,
    Open,
    Publish,
    Subscribe,
    encode_control,
)

STREAM = "shared"
Attack = Callable[[Peer], Awaitable[tuple[int, int]]]
"""Says something, and returns what would be the end of it: so many frames of this type."""


def batch(count: int = 1, **columns: object) -> bytes | memoryview:
    return Batch.build(stream_id(STREAM), [b""] * count, time_us=time.time_ns() // 1000, **columns).encode()


def say(peer: Peer, type_: int, message: object, *data: bytes | memoryview) -> None:
    peer.say(1, encode_control(message), data, type_)


async def a_pattern_with_too_many_states(peer: Peer) -> tuple[int, int]:
    """512 KiB of text that is followed instruction by instruction, for two seconds and more."""
    await peer.ask(SUBSCRIBE, Subscribe(1, STREAM, where="t ~ 'a[ab]{900}x'", credit=1 << 40))
    text = "".join(random.Random(1).choices("ab", k=1 << 19)) + "a" + "b" * 900 + "x"
    say(peer, PUBLISH, Publish(1), batch(attributes={"t": [pa.array([text])]}))
    return EVENTS, 1


async def filters_that_all_rows_pass(peer: Peer) -> tuple[int, int]:
    """100 million pairs of a row and a filter."""
    for number in range(200):
        await peer.ask(SUBSCRIBE, Subscribe(number, STREAM, where=f"not exists q{number}", credit=1 << 40))
    say(peer, PUBLISH, Publish(1), batch(1 << 19))
    return EVENTS, 200


async def long_filters(peer: Peer) -> tuple[int, int]:
    for number in range(40):
        where = " or ".join(f"a{each} = '{number}.{each}'" for each in range(1_000))
        say(peer, SUBSCRIBE, Subscribe(number, STREAM, where=where))
    return SUBSCRIBED, 40


async def many_predicates(peer: Peer) -> tuple[int, int]:
    texts = pa.array([f"a = 'v{number}'" for number in range(20_000)])
    say(peer, PUBLISH, Publish(1), batch(20_000, kinds=[Kind.GC] * 20_000, attributes={"@gc": [texts]}))
    return STORED, 1


@pytest.mark.parametrize(
    "attack", [a_pattern_with_too_many_states, filters_that_all_rows_pass, long_filters, many_predicates]
)
def test_others_are_answered_before_what_takes_long_is_done(tmp_path: Path, attack: Attack) -> None:
    async def main() -> None:
        async with AsyncClient(server.url, name="neighbour") as client:
            await client.publish("calm", b"first")
            hostile = await Peer.connect(server.url)
            await hostile.ask(OPEN, Open(1, STREAM))
            type_, count = await attack(hostile)
            heard: list[int] = []

            def ended() -> bool:
                while not hostile.heard.empty():
                    heard.append(hostile.heard.get_nowait()[0])
                return heard.count(type_) >= count

            for number in range(5):
                await client.publish("calm", b"%d" % number)
            assert not ended()
            await until(ended)
            await hostile.close()

    server = ServerProcess(tmp_path).start("--set", "log.mode=interval")
    try:
        asyncio.run(main())
    finally:
        server.end()
