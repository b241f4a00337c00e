"""A proxy among three, to be driven by hand: X owns one stream and takes another, which is Y's."""

from __future__ import annotations

import random
from typing import Any

from tests.unit.protocols.contexts import InOrder

from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.proxy_level import Advertisement, ProxyLevel, ProxyLevelConfig, Streams

X, Y, Z = (Address(f"{name}/proxy-1") for name in "xyz")
OURS, THEIRS = 1, 2
S = 1_000_000


class FromZero(random.Random):
    """So that tokens count from 1."""

    def getrandbits(self, k: int, /) -> int:
        return 0


def proxy(history: MemoryHistory | None = None, **config: Any) -> tuple[ProxyLevel, InOrder]:
    context = InOrder(X, FromZero(1))
    streams = Streams("x", {OURS: "x", THEIRS: "y"})
    made = ProxyLevel(context, ProxyLevelConfig(**config), history or MemoryHistory(), streams, [X, Y, Z])
    made.on_start(0, ())
    context.outputs.clear()
    return made, context


def theirs(first: int, last: int) -> Batch:
    return Batch.build(THEIRS, [b"%d" % i for i in range(first, last + 1)], first=first)


def advertise(made: ProxyLevel, sender: Address, counter: int, time_us: int) -> None:
    made.on_message(time_us, sender, Advertisement(((THEIRS, counter),)))
