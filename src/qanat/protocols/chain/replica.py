"""One replica as one machine: its part in the chain, its session with the coordinator, and the manager
between them."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, get_args

from qanat.kernel import Address, Context, Machine, Parts, require
from qanat.protocols.chain.config import ChainConfig
from qanat.protocols.chain.configuration import CaughtUp, Configuration, Failed, Member
from qanat.protocols.chain.flow import ChainHistory
from qanat.protocols.chain.machine import Chain
from qanat.protocols.chain.manager import ChainManager
from qanat.protocols.chain.requests import (
    ChainItem,
    ChainOrder,
    ChainRequest,
    Configured,
    GiveUp,
    LeaseChanged,
    Leave,
    Named,
    Wanted,
)
from qanat.protocols.chain.witness import Witness
from qanat.protocols.registry import CoordinatorSession

TICK, VOUCH = "tick", "vouch"
TICK_US = 200_000
"""How often the manager makes a lost call again: a few round trips."""


class Replica(Machine[Any, ChainRequest | ChainOrder]):
    """`connect(context, listener)` makes the session; `folder` is the chain's place in the coordinator. The
    rest is as for `Chain`."""

    delivers: tuple[type, ...] | None = get_args(ChainItem)
    chain_type: type[Chain] = Chain

    def __init__(
        self,
        context: Context,
        config: ChainConfig,
        history: ChainHistory,
        connect: Callable[[Context, "Replica"], CoordinatorSession],
        *,
        owns: Callable[[int], bool],
        folder: str,
        wary_us: int,
        named: Collection[str] = (),
    ) -> None:
        super().__init__(context)
        self._now_us = 0
        self.named = named
        """Every replica that the settings name; the first configuration of all waits for them."""
        self.parts = Parts(self, context)
        self.session = self.parts.add("session", lambda context: connect(context, self))
        self.chain = self.parts.add(
            "chain",
            lambda context: self.chain_type(
                context,
                config,
                history,
                owns=owns,
                may_serve=self._may_serve,
                report=self._report,
                wary_us=wary_us,
                stable=self._on_stable,
            ),
        )
        self.manager = ChainManager(
            folder,
            context.address,
            config.replicas,
            self.chain.knowledge,
            configured=self._on_configuration,
            named=lambda: self.named,
            draw=lambda: context.rng.getrandbits(32),
        )
        self.witness = Witness()

    def _may_serve(self, now_us: int) -> bool:
        """While an event says that the configuration changed, and it is not read yet, nobody here serves.

        A lease protects the member that the session registered. A place in the chain from a session before it
        is no longer ours: others may have given it away without waiting.
        """
        ours = self.chain.me == self.manager.me
        return ours and self.manager.trusted and self.session.leased(now_us)

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self._now_us = now_us
        self.chain.on_start(now_us, saved)
        self.manager.empty = not saved
        self._note_sessions()
        self.session.start()
        self.context.set_timer(TICK, TICK_US)
        self.context.set_timer(VOUCH, round(self.chain.config.vouch_ms * 1000))

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        self._now_us = now_us
        self.parts.on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        self._now_us = now_us
        if self.parts.on_timer(now_us, name):
            return
        if name == VOUCH:
            history = self.chain.history
            if self.chain.is_member:
                self.chain.knowledge.note_had(filter(self.chain.owns, history.streams()), history)
            self.context.set_timer(VOUCH, round(self.chain.config.vouch_ms * 1000))
        else:
            require(name == TICK, f"no timer is called {name!r}")
            self.manager.look_again(self.session)
            self._report_dead()
            self.context.set_timer(TICK, TICK_US)

    def on_persisted(self, now_us: int, name: str) -> None:
        self._now_us = now_us
        self.parts.on_persisted(now_us, name)

    def on_request(self, now_us: int, request: ChainRequest | ChainOrder) -> None:
        self._now_us = now_us
        if isinstance(request, Wanted):
            self.manager.wanted = request.replicas
            self.manager.tick(self.session)
        elif isinstance(request, Named):
            self.named = request.replicas
            self.manager.tick(self.session)
        elif isinstance(request, GiveUp):
            self.manager.give_up(self.session, request.replicas)
        elif isinstance(request, Leave):
            self.session.close()
            self.manager.on_expired()
        else:
            self.chain.on_request(now_us, request)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self._now_us = now_us
        self.parts.on_link_down(now_us, peer)

    def on_refused(self, now_us: int, peer: Address) -> None:
        self._now_us = now_us
        if self.witness.refused(peer, self.manager.registered):
            self._report_dead()

    def _report_dead(self) -> None:
        """Again and again: the coordinator may be away, or not have noticed yet that its own channel with
        them is broken."""
        for member in self.witness.still(self.manager.registered):
            self.session.gone(member.incarnation)

    # What the session tells

    def on_opened(self, session: int) -> None:
        self.manager.on_opened(self.session, session)

    def on_expired(self) -> None:
        self.manager.on_expired()

    def on_event(self, kind: str, path: str) -> None:
        self.manager.on_event(self.session, path)

    def on_lease(self) -> None:
        self.chain.on_request(self._now_us, LeaseChanged())
        self._report_dead()

    # What the manager and the chain tell each other

    def _on_configuration(self, member: Member, configuration: Configuration) -> None:
        self.chain.on_request(self._now_us, Configured(member, configuration))
        self._note_sessions()
        self.chain.on_request(self._now_us, LeaseChanged())

    def _note_sessions(self) -> None:
        """What a life knew is told by the numbers of sessions. A coordinator that lost its journal takes them
        from its clock, and that may have been set back."""
        self.session.above = max(self.session.above, self.chain.knowledge.newest_session)

    def _on_stable(self, stream: int) -> None:
        """The tail shows more of a stream."""

    def _report(self, report: CaughtUp | Failed) -> None:
        self.context.trace("report", report=report)
        self.manager.report(self.session, report)
