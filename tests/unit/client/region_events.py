"""What happens in a region: events whose payloads are their numbers, and roles that move while replicas
die."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from qanat.client import Subscription
from qanat.events.event import events


async def take(subscription: Subscription, count: int) -> list[tuple[int, bytes]]:
    got: list[tuple[int, bytes]] = []
    while len(got) < count:
        for batch in await subscription.take():
            got += [(event.seq, event.payload) for event in events(batch)]
    return got


def numbered(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(first, last + 1)]


@asynccontextmanager
async def disturbed(region: Any, rng: random.Random, *roles: str) -> AsyncIterator[None]:
    """Again and again these roles go from one replica to others, and often it is killed and comes back."""

    async def disturb() -> None:
        names = list(region.replicas)
        while True:
            await asyncio.sleep(rng.random() / 20)
            victim = region.replicas[rng.choice(names)]
            others = [name for name in names if name != victim.name]
            region.move(**{role: rng.choice(others) for role in roles})
            if rng.random() < 0.6:
                await victim.kill()
                await asyncio.sleep(rng.random() / 20)
                await victim.start()

    disturbing = asyncio.create_task(disturb())
    try:
        yield
    finally:
        disturbing.cancel()
        await asyncio.gather(disturbing, return_exceptions=True)
