"""A chain's replica with the proxy level at its ends (Sprinkler, sections 3.1 and 3.3 together).

The head takes events of remote streams (`Receiving`) and hands them down the chain; the tail shows what the
chain calls stable to other regions (`Sending`). Which of the two is at work follows from the replica's place
after each input, so a change of the configuration needs no hook of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from qanat.events.errors import LocalError
from qanat.events.tombstones import tombstone
from qanat.kernel import Address, Context
from qanat.protocols.chain.flow import ChainHistory
from qanat.protocols.chain.replica import Replica
from qanat.protocols.proxy_level.exchange import Exchange
from qanat.protocols.proxy_level.messages import Advertisement
from qanat.protocols.proxy_level.receiving import Receiving
from qanat.protocols.proxy_level.sending import Sending
from qanat.protocols.region.config import RegionConfig
from qanat.protocols.region.requests import Peers, RegionItem, RegionRequest, StreamsChanged
from qanat.protocols.registry import CoordinatorSession


class RegionReplica(Replica):
    """`owners` are all streams of the deployment with the region that numbers each; `region` is ours;
    `remote` are all replicas of all other regions. The rest is as for `Replica`.

    Takes the requests of a chain, `Peers` and `StreamsChanged`; delivers what a chain does, and `Unserved`
    when no source has what comes next of a remote stream.
    """

    delivers = get_args(RegionItem)
    sending_type: type[Sending] = Sending

    def __init__(
        self,
        context: Context,
        config: RegionConfig,
        history: ChainHistory,
        connect: Callable[[Context, Replica], CoordinatorSession],
        *,
        region: str,
        owners: Mapping[int, str],
        remote: Sequence[Address],
        folder: str,
        wary_us: int,
        named: Collection[str] = (),
    ) -> None:
        self.region, self.owners = region, dict(owners)
        super().__init__(
            context,
            config.chain,
            history,
            connect,
            owns=self._owns,
            folder=folder,
            wary_us=wary_us,
            named=named,
        )
        level = config.proxy_level
        self.receiving = Receiving(context, level, history, self._remote_streams(), remote, self._taken)
        self.sending = self.sending_type(context, level, history, self.owners, remote, self.visible)
        self.exchange = self.parts.add(
            "proxy-level",
            lambda context: Exchange(context, level, self.receiving, self.sending, self._advertise),
        )
        self.receiving.active = self.sending.active = False
        self._serving = False
        self._elsewhere: dict[int, int] = {}
        """Of our own streams, where another region has more than we: how much."""

    def _owns(self, stream: int) -> bool:
        return self.owners.get(stream) == self.region

    def _remote_streams(self) -> list[int]:
        return [stream for stream, owner in self.owners.items() if owner != self.region]

    def visible(self, stream: int) -> int:
        """How far the stream may be shown to other regions now: nothing, unless this is the tail and may
        serve."""
        return self.chain.shown(stream) if self.chain.serves(self._now_us) else 0

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        super().on_start(now_us, saved)
        self.exchange.start(now_us)

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        if isinstance(message, Advertisement):
            self._note_elsewhere(sender, message)
        super().on_message(now_us, sender, message)
        self._follow_place()

    def on_timer(self, now_us: int, name: str) -> None:
        super().on_timer(now_us, name)
        self._follow_place()

    def on_persisted(self, now_us: int, name: str) -> None:
        super().on_persisted(now_us, name)
        self._follow_place()

    def on_request(self, now_us: int, request: RegionRequest) -> None:
        self._now_us = now_us
        if isinstance(request, Peers):
            self.exchange.set_peers(request.remote)
        elif isinstance(request, StreamsChanged):
            self._change_streams(request.owners)
        else:
            super().on_request(now_us, request)
        self._follow_place()

    def on_link_down(self, now_us: int, peer: Address) -> None:
        super().on_link_down(now_us, peer)
        self._follow_place()

    # Transitions

    def _follow_place(self) -> None:
        """The halves begin and end with the replica's place."""
        receives, sends = self._receives(), self._sends()
        if receives != self.receiving.active:
            self.context.trace("receiving", active=receives)
            if receives:
                self.receiving.start()
            else:
                self.receiving.stop()
        if sends != self.sending.active:
            self.context.trace("sending", active=sends)
            if sends:
                self.sending.start()
            else:
                self.sending.stop()
        if self._elsewhere and receives and self.chain.confirmed and self._may_serve(self._now_us):
            self._number_above()
        was, self._serving = self._serving, self.chain.serves(self._now_us)
        if self._serving and not was:
            for stream in self.owners:
                self.sending.advanced(stream)
            self._advertise()

    def _note_elsewhere(self, sender: Address, message: Advertisement) -> None:
        for stream, counter in message.counters:
            known = max(self._elsewhere.get(stream, 0), self.chain.history.counter(stream))
            if counter > known and self._owns(stream) and self.receiving.knows(sender):
                self._elsewhere[stream] = counter

    def _number_above(self) -> None:
        """Others have more of our own stream than we: it was kept in memory, or synced now and then, and
        every replica here has lost it. Its numbers go on above theirs, or they would never take what is
        published now."""
        elsewhere, self._elsewhere = self._elsewhere, {}
        for stream, upto in elsewhere.items():
            own = self.chain.history.counter(stream)
            if upto > own:
                self.context.trace("lost here", stream=stream, first=own + 1, last=upto)
                try:
                    self.chain.history.append_numbered(tombstone(stream, own + 1, upto))
                except LocalError as error:  # a full disk: the next advertisement reminds us
                    self.context.trace("not stored", stream=stream, reason=str(error))
                else:
                    self.chain.stored(stream)

    def _receives(self) -> bool:
        """A new head stores nothing before the beginning of its era is on disk."""
        return self.chain.is_head and not self.chain.is_fenced

    def _sends(self) -> bool:
        """A tail that may not serve for the moment keeps its subscribers, but shows them nothing
        (`visible`)."""
        return self.chain.is_tail

    def _advertise(self) -> None:
        """Not a word from a tail that may not serve: zeros would only cost a message."""
        if self.chain.serves(self._now_us):
            self.sending.advertise()

    def _taken(self, stream: int, before: int) -> None:
        self.chain.stored(stream)

    def _on_stable(self, stream: int) -> None:
        self.sending.advanced(stream)

    def _change_streams(self, owners: Mapping[int, str]) -> None:
        kept = {stream: self.owners.get(stream, owner) for stream, owner in owners.items()}
        for stream in sorted(stream for stream in kept if kept[stream] != owners[stream]):
            self.context.trace("owner kept", stream=stream, owner=kept[stream], asked=owners[stream])
        self.owners = kept
        self.receiving.set_streams(self._remote_streams())
        self.sending.set_streams(self.owners)
