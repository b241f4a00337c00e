"""Events of a region's stream whose payloads are their numbers."""

from __future__ import annotations

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
