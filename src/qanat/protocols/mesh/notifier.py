"""Who hears of progress, and when: the shuffle (Sprinkler, section 3.2, "Shuffling")."""

from collections.abc import Callable
from typing import TypeAlias

from qanat.kernel import Address, Context
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.messages import Notify
from qanat.protocols.views import Membership

NOTIFY = "notify"
SHUFFLE = "shuffle"
ASK_INTERVALS = 6
"""A member that lacks what others have asks for it after so many times `notify_ms` without getting on."""
NEWS = 16
"""Ranges told of in one NOTIFY, so that it stays one datagram; of others, later counters tell."""

News: TypeAlias = tuple[tuple[int, int, int], ...]
"""(stream, first, last) of what is new."""


class Notifier:
    """Sends NOTIFYs to F random neighbours, at most one each per `notify_ms`.

    The proxy is not among the F unless there is nobody else: a client has nothing that the proxy lacks.
    `attached` are told as well, by their channels; only a proxy has any.
    """

    __slots__ = (
        "_ask_every", "_context", "_fanout", "_idle_us", "_lacks", "_membership", "_new", "_news",
        "_notify_us", "_pause_us", "_resting", "_say", "_shuffle_us", "_shuffles", "_told", "attached",
        "chosen",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        config: MeshConfig,
        membership: Membership,
        say: Callable[[bool, News], Notify | None],
        lacks: Callable[[], bool],
    ) -> None:
        self._context = context
        self._membership = membership
        self._say = say
        self._lacks = lacks
        self._fanout = config.fanout
        self._notify_us = round(config.notify_ms * 1000)
        is_proxy = membership.proxy == context.address
        shuffle_ms = config.proxy_shuffle_ms if is_proxy else config.shuffle_ms
        self._shuffle_us = self._pause_us = round(shuffle_ms * 1000)
        self._idle_us = round(config.idle_ms * 1000)
        self._ask_every = max(1, round(ASK_INTERVALS * self._notify_us / self._shuffle_us))
        self._shuffles = 0
        self._new = False
        self._news: list[tuple[int, int, int]] = []
        self._resting = False
        """Whether the last NOTIFY is so young that the next must wait for the timer."""
        self._told = False
        """Whether there was anything new since the last shuffle."""
        self.chosen: list[Address] = []
        self.attached: dict[Address, None] = {}

    def start(self) -> None:
        self._context.set_timer(SHUFFLE, self._context.rng.randrange(self._shuffle_us) + 1)

    def stop(self) -> None:
        self._context.cancel_timer(SHUFFLE)
        self._context.cancel_timer(NOTIFY)
        self.chosen = []

    def received(self, stream: int, first: int, last: int) -> None:
        """Something came that neighbours may lack: the next NOTIFY tells of it."""
        news = self._news
        for at, (other, start, end) in enumerate(news):
            if end + 1 == first and other == stream:
                news[at] = (stream, start, last)
                return
        if len(news) < NEWS:
            news.append((stream, first, last))

    def progressed(self) -> None:
        """There is something to tell of."""
        if self._pause_us > self._shuffle_us:
            self._pause_us = self._shuffle_us
            self._context.set_timer(SHUFFLE, self._shuffle_us)
        self._new = True
        if not self._resting:
            self._rest()

    def on_notify_timer(self) -> None:
        self._resting = False
        if self._new:
            self._rest()

    def on_shuffle_timer(self) -> None:
        """Another F. If there was nothing new since the last shuffle, the new ones hear all there is, and are
        asked for what they have: one of us may lack it, above all a member that is in few views."""
        self._shuffle()
        self._shuffles += 1
        if self._told:
            self._told = False
            self._pause_us = self._shuffle_us
            if self._shuffles % self._ask_every == 0 and self._lacks():
                self._tell(ask=True)
        else:
            self._tell(ask=True)
            self._pause_us = min(self._pause_us * 2, self._idle_us)
        self._context.set_timer(SHUFFLE, self._pause_us)

    def include(self, peer: Address) -> None:
        """Somebody behind us asked: until the next shuffle it is among the F, in the place of another.

        In-degrees are random: whoever is in few views would else have to ask for everything.
        """
        if peer not in self.chosen:
            self.chosen = [*self.chosen[1 - self._fanout :], peer] if self._fanout > 1 else [peer]

    def _rest(self) -> None:
        self._resting, self._new, self._told = True, False, True
        self._tell(ask=False)
        self._context.set_timer(NOTIFY, self._notify_us)

    def _shuffle(self) -> None:
        proxy = self._membership.proxy
        view = self._membership.view
        others = [peer for peer in view if peer != proxy] or list(view)
        self.chosen = self._context.rng.sample(others, self._fanout) if len(others) > self._fanout else others

    def _tell(self, *, ask: bool) -> None:
        message = self._say(ask, tuple(self._news))
        self._news.clear()
        if message is None:
            return
        if not self.chosen:
            self._shuffle()
        cast = self._context.cast
        for peer in self.chosen:
            cast(peer, message)
        for peer in self.attached:
            self._context.send(peer, message)
