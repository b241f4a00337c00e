"""Who hears of progress, and when: the shuffle (Sprinkler, section 3.2, "Shuffling")."""

from collections.abc import Callable

from qanat.kernel import Address, Context
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.messages import Notify
from qanat.protocols.views import Membership

NOTIFY = "notify"
SHUFFLE = "shuffle"


class Notifier:
    """Sends NOTIFYs to F random neighbours, at most one each per `notify_ms`.

    The proxy is not among the F unless there is nobody else: a client has nothing that the proxy lacks.
    `attached` are told as well, by their channels; only a proxy has any.
    """

    __slots__ = (
        "_context", "_fanout", "_idle_us", "_membership", "_new", "_notify_us", "_pause_us", "_resting",
        "_say", "_shuffle_us", "_told", "attached", "chosen",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        config: MeshConfig,
        membership: Membership,
        say: Callable[[bool], Notify | None],
    ) -> None:
        self._context = context
        self._membership = membership
        self._say = say
        self._fanout = config.fanout
        self._notify_us = round(config.notify_ms * 1000)
        is_proxy = membership.proxy == context.address
        shuffle_ms = config.proxy_shuffle_ms if is_proxy else config.shuffle_ms
        self._shuffle_us = self._pause_us = round(shuffle_ms * 1000)
        self._idle_us = round(config.idle_ms * 1000)
        self._new = False
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

    def progressed(self) -> None:
        """A counter grew."""
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
        if self._told:
            self._told = False
            self._pause_us = self._shuffle_us
        else:
            self._tell(ask=True)
            self._pause_us = min(self._pause_us * 2, self._idle_us)
        self._context.set_timer(SHUFFLE, self._pause_us)

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
        message = self._say(ask)
        if message is None:
            return
        if not self.chosen:
            self._shuffle()
        cast = self._context.cast
        for peer in self.chosen:
            cast(peer, message)
        for peer in self.attached:
            self._context.send(peer, message)
