"""A chain's replica that tells its neighbours once for all that came together, instead of once for each batch.

Small publishes arrive many at a time, and each would be a message down the chain, and an acknowledgement up. Nothing depends on
*when* a replica looks at what has changed: it may as well have been waiting for its disk. So it looks once, by a timer that runs
out at once: on a real loop after everything that was received in the same turn.
"""

from collections.abc import Iterable

from qanat.kernel import Address
from qanat.protocols.chain.machine import PREFIX, Chain
from qanat.protocols.chain.messages import Ack, ChainMessage, Forward
from qanat.protocols.chain.requests import ChainRequest, Publish, Store
from qanat.protocols.history import Synced

GATHER = f"{PREFIX}gather"


class GatheringChain(Chain):
    """The same, but for events, acknowledgements and syncs: what follows from these is done by a timer."""

    _gathering = False
    _armed = False
    _streams: dict[int, None]

    def on_message(self, now_us: int, sender: Address, message: ChainMessage) -> None:
        self._gathering = isinstance(message, (Forward, Ack))
        try:
            super().on_message(now_us, sender, message)
        finally:
            self._gathering = False

    def on_request(self, now_us: int, request: ChainRequest) -> None:
        self._gathering = isinstance(request, (Publish, Store, Synced))
        try:
            super().on_request(now_us, request)
        finally:
            self._gathering = False

    def stored(self, now_us: int, stream: int) -> None:
        self._gathering = True
        try:
            super().stored(now_us, stream)
        finally:
            self._gathering = False

    def on_timer(self, now_us: int, name: str) -> None:
        if name == GATHER:
            self._armed = False
            super()._advance(now_us, self._streams)
        else:
            super().on_timer(now_us, name)

    def _advance(self, now_us: int, streams: Iterable[int]) -> None:
        if not self._gathering:
            super()._advance(now_us, streams)
        elif self._armed:
            self._streams.update(dict.fromkeys(streams))
        else:
            self._streams = dict.fromkeys(streams)
            self._armed = True
            self.context.set_timer(GATHER, 0)
