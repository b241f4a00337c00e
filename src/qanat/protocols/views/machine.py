"""Membership alone, as a machine."""

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from qanat.kernel import Address, Context, Machine, require
from qanat.protocols.views.config import ViewsConfig
from qanat.protocols.views.membership import GOSSIP, Membership
from qanat.protocols.views.messages import Gossip, Leave, UseProxy

ViewsRequest: TypeAlias = Leave | UseProxy


class Views(Machine[Gossip, ViewsRequest]):
    """A member of a region that only keeps its view; the mesh holds the same `Membership`."""

    message_types = (Gossip,)
    delivers = ()

    def __init__(self, context: Context, config: ViewsConfig, proxy: Address) -> None:
        super().__init__(context)
        self.membership = Membership(context, config, proxy)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.membership.start()

    def on_message(self, now_us: int, sender: Address, message: Gossip) -> None:
        self.membership.on_gossip(sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        require(name == GOSSIP, f"no timer is called {name!r}")
        self.membership.on_round()

    def on_request(self, now_us: int, request: ViewsRequest) -> None:
        match request:
            case Leave():
                self.membership.stop()
            case UseProxy():
                self.membership.use_proxy(request.address)
            case _:
                assert_never(request)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.membership.drop(peer)
