"""Taking events from a stream."""

from __future__ import annotations

from qanat.client import Event, Subscription


async def take(subscription: Subscription, count: int) -> list[Event]:
    events: list[Event] = []
    iterator = aiter(subscription)
    while len(events) < count:
        events.append(await anext(iterator))
    return events
