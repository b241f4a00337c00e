"""Both halves of the protocol at one node: who gets which message, and the timer that they share."""

from collections.abc import Callable, Sequence
from typing import assert_never

from qanat.kernel import Address, Context, Part, require
from qanat.protocols.proxy_level.config import ProxyLevelConfig
from qanat.protocols.proxy_level.messages import (
    MESSAGES,
    Ack,
    Advertisement,
    Ended,
    Events,
    ProxyLevelMessage,
    Subscribe,
    Unserved,
    Unsubscribe,
)
from qanat.protocols.proxy_level.receiving import Receiving
from qanat.protocols.proxy_level.sending import Sending

ADVERTISE = "advertise"


class Exchange(Part):
    """`advertise` is called when it is time to, and looks whether it may. Delivers `Unserved` when no source
    has what comes next of a stream."""

    message_types = MESSAGES

    def __init__(
        self,
        context: Context,
        config: ProxyLevelConfig,
        receiving: Receiving,
        sending: Sending,
        advertise: Callable[[], None],
    ) -> None:
        self._context, self._advertise = context, advertise
        self._receiving, self._sending = receiving, sending
        self._interval_us = max(10, round(config.advertise_ms * 1000))

    def start(self, now_us: int) -> None:
        self._arm(self._context.rng.randrange(self._interval_us) + 1)

    def on_message(self, now_us: int, sender: Address, message: ProxyLevelMessage) -> None:
        match message:
            case Advertisement():
                self._receiving.on_advertisement(now_us, sender, message)
            case Events():
                self._receiving.on_events(now_us, sender, message)
            case Unserved():
                if self._receiving.on_unserved(sender, message):
                    self._context.deliver(message)
            case Ended():
                self._receiving.on_ended(sender, message)
            case Subscribe():
                self._sending.on_subscribe(sender, message)
            case Unsubscribe():
                self._sending.on_unsubscribe(sender, message)
            case Ack():
                self._sending.on_ack(sender, message)
            case _:
                assert_never(message)

    def on_timer(self, now_us: int, name: str) -> None:
        require(name == ADVERTISE, f"no timer is called {name!r}")
        # A tenth more or less each time, so that the regions' advertisements do not keep one order for ever.
        self._arm(round(self._interval_us * (0.9 + 0.2 * self._context.rng.random())))
        self._receiving.on_tick(now_us)
        self._advertise()

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self._receiving.on_link_down(peer)
        self._sending.on_link_down(peer)

    def set_peers(self, peers: Sequence[Address]) -> None:
        """Who may be a source and a subscriber."""
        self._receiving.set_peers(peers)
        self._sending.set_peers(peers)

    def _arm(self, after_us: int) -> None:
        self._context.set_timer(ADVERTISE, after_us)
