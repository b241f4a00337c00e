"""What is kept for peers to whom no connection is up."""

import asyncio
import random

from qanat.runtime import links as links_module
from qanat.runtime.budget import Level, Shed
from qanat.runtime.links import Links
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url
from qanat.wire.control import Identity


def links(down: list[str]) -> Links:
    return Links(
        Identity("me"),
        {},
        lambda name: Url("127.0.0.1", 1) if name.startswith("known") else None,
        down.append,
        settings=TransportSettings(backoff_ms=1),
        traffic=Traffic(warns=False),
        rng=random.Random(1),
    )


def test_names_that_strangers_make_up_are_forgotten_beyond_a_bound() -> None:
    async def main() -> None:
        down: list[str] = []
        ours = links(down)
        for number in range(3 * 64):
            ours.send(f"stranger-{number}", [b"x"])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(ours._links) <= 64
        assert len(down) > 100
        await ours.close()

    before, links_module.LINKS_MAX = links_module.LINKS_MAX, 64
    try:
        asyncio.run(main())
    finally:
        links_module.LINKS_MAX = before


def test_when_memory_is_short_the_channels_break_for_which_most_waits() -> None:
    async def main() -> None:
        down: list[str] = []
        ours = links(down)
        for name, size in (("known-small", 1_000), ("known-large", 50_000), ("known-middle", 20_000)):
            ours.send(name, [bytes(size)])
        assert ours.waiting_bytes == 71_000
        assert ours.give_up(Shed(Level.TIGHT, 0, 1 << 30)) == 0
        assert ours.give_up(Shed(Level.SHORT, 60_000, 1 << 30)) == 70_000
        assert ours.waiting_bytes == 1_000
        await asyncio.sleep(0)
        assert down == ["known-large", "known-middle"]
        await ours.close()

    asyncio.run(main())
