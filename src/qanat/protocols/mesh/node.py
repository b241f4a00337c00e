"""What a client and a proxy have in common in the mesh."""

from collections.abc import Sequence
from typing import Generic, TypeAlias, TypeVar, assert_never

from qanat.events.batch import Batch
from qanat.kernel import Address, Context, Machine, require
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.messages import Attach, Events, Notify, Request
from qanat.protocols.mesh.notifier import NOTIFY, SHUFFLE, News, Notifier
from qanat.protocols.views import GOSSIP, Gossip, Membership, ViewsConfig

MeshMessage: TypeAlias = Gossip | Notify | Request | Events | Attach
R = TypeVar("R")


class MeshNode(Machine[MeshMessage, R], Generic[R]):
    """A member of the region: keeps a view, tells F neighbours how far it is, answers requests."""

    message_types = (Gossip, Notify, Request, Events, Attach)
    delivers = (Batch,)

    def __init__(
        self,
        context: Context,
        config: MeshConfig,
        views: ViewsConfig,
        proxy: Address,
        *,
        listens: bool = True,
    ) -> None:
        super().__init__(context)
        self.config = config
        self.membership = Membership(context, views, proxy, listens=listens)
        self.notifier = Notifier(context, config, self.membership, self._progress, self._lacks)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.membership.start()
        if self.membership.listens:
            self.notifier.start()

    def on_message(self, now_us: int, sender: Address, message: MeshMessage) -> None:
        match message:
            case Notify():
                self.on_notify(sender, message)
                if message.ask:
                    self._on_ask(sender, message)
            case Request():
                self._on_request(sender, message)
            case Events():
                self.on_events(sender, message)
            case Gossip():
                self.membership.on_gossip(sender, message)
            case Attach():
                self.on_attach(sender)
            case _:
                assert_never(message)

    def on_timer(self, now_us: int, name: str) -> None:
        if name == NOTIFY:
            self.notifier.on_notify_timer()
        elif name == SHUFFLE:
            self.notifier.on_shuffle_timer()
        elif name == GOSSIP:
            self.membership.on_round()
        else:
            self.on_other_timer(name)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.notifier.attached.pop(peer, None)
        self.membership.drop(peer)
        if peer in self.notifier.chosen:
            self.notifier.chosen = [one for one in self.notifier.chosen if one != peer]

    def _on_request(self, sender: Address, message: Request) -> None:
        """receiveRequest: what we still have of it, and how far we are."""
        if not 1 <= message.nxt <= message.cnt:
            self.context.trace("refused", sender=sender, nxt=message.nxt, cnt=message.cnt)
            return
        batches, upto, cnt = self.answer(message)
        self.context.send(sender, Events(message.stream, message.nxt, upto, cnt, tuple(batches)))

    def _on_ask(self, sender: Address, message: Notify) -> None:
        """Somebody without news: if we are ahead, it hears so from us."""
        for stream, cnt in zip(message.streams, message.counters, strict=False):
            if self.counter(stream) > cnt:
                progress = self._progress()
                if progress is not None:
                    self.context.cast(sender, progress)
                    self.notifier.include(sender)
                return

    # What differs between the two

    def _progress(self, ask: bool = False, news: News = ()) -> Notify | None:
        """All counters, for a NOTIFY; None when there are no streams."""
        raise NotImplementedError

    def _lacks(self) -> bool:
        """Whether something that others have does not come; asked once in a while."""
        return False

    def counter(self, stream: int) -> int:
        """How far we are in a stream; 0 in one that we do not have."""
        raise NotImplementedError

    def answer(self, message: Request) -> tuple[list[Batch], int, int]:
        """Batches, the last number that the answer speaks of, and our counter."""
        raise NotImplementedError

    def on_notify(self, sender: Address, message: Notify) -> None:
        """A proxy has nothing to learn from clients."""

    def on_events(self, sender: Address, message: Events) -> None:
        """A proxy asks nobody here."""

    def on_attach(self, sender: Address) -> None:
        """Only a proxy is attached to."""

    def on_other_timer(self, name: str) -> None:
        require(False, f"no timer is called {name!r}")
