"""Keeps a chain at its wanted length: registers this replica, watches the others, and changes the
configuration.

Every replica has one; whoever sees first that the configuration should change proposes it by compare-and-set,
and the rest read the result. Level-triggered: `tick` does whatever is missing, so a lost call is merely made
again.
"""

from collections.abc import Callable, Collection

import msgspec

from qanat.protocols.chain.configuration import (
    CaughtUp,
    Configuration,
    Failed,
    Member,
    Registration,
    decode_configuration,
    decode_registration,
    encode,
    newest_of,
)
from qanat.protocols.chain.knowledge import Knowledge
from qanat.protocols.chain.recovery import Standing, Waits, begun, next_of, standing, waiting
from qanat.protocols.registry import Calls, Found, Registry, make_folders, node_name


class ChainManager:
    """`folder` is the chain's place in the coordinator, for example `/chains/eu`; `knowledge` what this
    replica knows from earlier lives; `configured` is told of each configuration read, `named` says which
    replicas the settings name, `draw` draws a number."""

    def __init__(
        self,
        folder: str,
        address: str,
        wanted: int,
        knowledge: Knowledge,
        configured: Callable[[Member, Configuration], None],
        named: Callable[[], Collection[str]],
        draw: Callable[[], int],
    ) -> None:
        self._folder, self._address, self.wanted = folder, address, wanted
        self._knowledge, self._configured, self._named, self._draw = knowledge, configured, named, draw
        self._path, self._replicas = f"{folder}/configuration", f"{folder}/replicas"
        self.me: Member | None = None
        self.configuration: Configuration | None = None
        self.certain = False
        """What we have is what the coordinator had at our last word with it, and no event since says
        otherwise."""
        self.apart = ""
        """Why this replica can have no part in the chain any more: a sentence. Only an empty disk helps."""
        self.waits: Waits | None = None
        """Why nothing goes on, if somebody must come or an operator must decide."""
        self.gone: frozenset[str] = frozenset()
        """Who will never come back, as an operator says."""
        self._gone_since = 0
        self.empty = False
        """This life began without a journal."""
        self._stale = False
        """What lies there is less than this replica knows of."""
        self._version = -1
        self._missing = False
        self._registered = False
        self._said: Registration | None = None
        self._names: tuple[str, ...] | None = None
        self._known: dict[str, Registration] = {}
        self._calls = Calls()
        self._reports: list[CaughtUp | Failed] = []

    @property
    def registered(self) -> list[Member]:
        """Who is there, as last read."""
        return [each.member for each in self._known.values()]

    @property
    def trusted(self) -> bool:
        """What lies in the coordinator is known, and no less than what this replica once read there."""
        return self.certain and not self._stale and not self.apart

    # Inputs

    def on_opened(self, registry: Registry, session: int) -> None:
        self._forget()
        self.me = Member(self._address, session)
        self.tick(registry)

    def on_expired(self) -> None:
        self._forget()
        self.me = None

    def on_event(self, registry: Registry, path: str) -> None:
        if path == self._path:
            self.certain = self._missing = False
        elif path == self._replicas:
            self._names = None
        self.tick(registry)

    def report(self, registry: Registry, report: CaughtUp | Failed) -> None:
        self._reports = [each for each in self._reports if each.epoch == report.epoch and each != report]
        self._reports.append(report)
        self.tick(registry)

    def tick(self, registry: Registry) -> None:
        """Do what is missing; call it now and then."""
        if self.me is None:
            return
        if not self._registered:
            self._register(registry, self.me)
            return
        if not self.certain and not self._missing:
            self._read_configuration(registry)
        if self._names is None:
            self._read_replicas(registry)
        else:
            for name in self._names:
                if name not in self._known:
                    self._read_replica(registry, name)
        self._propose(registry, self.me)

    def give_up(self, registry: Registry, replicas: Collection[str]) -> None:
        self.gone = frozenset(replicas)
        self._gone_since = 0 if self.configuration is None else self.configuration.epoch
        self.tick(registry)

    def look_again(self, registry: Registry) -> None:
        """Now and then: while it is found out who knows what, registrations change, and no event tells of
        it."""
        if self.me is not None and self.configuration is not None and self.configuration.recovering:
            for name in self._names or ():
                self._read_replica(registry, name)
        self.tick(registry)

    def _forget(self) -> None:
        self.certain = self._missing = self._registered = False
        self._names, self._said = None, None
        self._known = {}
        self._calls.forget()
        self._reports = []  # a member's word; whoever has another session is another member

    # Calls, one of each kind at a time

    def _register(self, registry: Registry, me: Member) -> None:
        def registered(found: Found) -> None:
            self._registered = found.ok or found.problem == "node-exists"
            if self._registered:
                self.tick(registry)

        then = self._calls.once("register", registered)
        if then is None:
            return
        make_folders(registry, self._replicas)
        self._knowledge.begin(me, self.empty)
        self._said = self._knowledge.registration(me)
        registry.create(self._node_of(me), encode(self._said), then, ephemeral=True)

    def _node_of(self, me: Member) -> str:
        return f"{self._replicas}/{node_name(me.address, me.incarnation)}"

    def _say_again(self, registry: Registry, me: Member) -> None:
        """While it is found out who knows what, a registration must say what is known now."""
        now = self._knowledge.registration(me)
        if now != self._said:

            def said(found: Found) -> None:
                if found.ok:
                    self._said = now

            then = self._calls.once("say", said)
            if then is not None:
                registry.set(self._node_of(me), encode(now), -1, then)

    def _read_configuration(self, registry: Registry) -> None:
        def read(found: Found) -> None:
            self._missing = found.problem == "no-node"
            if found.ok:
                self._version = found.version
                self.configuration = decode_configuration(found.data)
                self.certain = True
                self._reports = [each for each in self._reports if each.epoch == self.configuration.epoch]
                self._compare(self.configuration)
                if self.me is not None and not self._stale and not self.apart:
                    self._configured(self.me, self.configuration)
            if found.ok or self._missing:
                self.tick(registry)

        then = self._calls.once("configuration", read)
        if then is not None:
            registry.get(self._path, then, watch=True)

    def _compare(self, now: Configuration) -> None:
        """With what this replica read earlier, in this life or another."""
        claim, promised = self._knowledge.claim, self._knowledge.promised
        is_other = promised[0] == now.epoch and promised[1] != now.id
        self._stale = promised[0] > now.epoch or is_other
        stands = Standing.KNOWN if claim is None else standing(claim, now)
        if stands is Standing.APART and claim is not None and not self.apart:
            self.apart = (
                f"this replica was in epoch {claim.epoch} of its chain, which the coordinator has forgotten,"
                " and the chain went on without it"
            )
        self._stale = self._stale or stands is Standing.AHEAD

    def _read_replicas(self, registry: Registry) -> None:
        def read(found: Found) -> None:
            if found.ok:
                self._names = found.children
                if (
                    self.me is not None
                    and node_name(self.me.address, self.me.incarnation) not in found.children
                ):
                    # a coordinator put back as it was may know the session, and nothing of what it did
                    self._registered = False
                self._known = {name: self._known[name] for name in found.children if name in self._known}
                self.tick(registry)

        then = self._calls.once("replicas", read)
        if then is not None:
            registry.children(self._replicas, then, watch=True)

    def _read_replica(self, registry: Registry, name: str) -> None:
        def read(found: Found) -> None:
            if found.ok:
                self._known[name] = decode_registration(found.data)
                self.tick(registry)
            else:
                self._names = None

        then = self._calls.once(name, read)
        if then is not None:
            registry.get(f"{self._replicas}/{name}", then)

    def _propose(self, registry: Registry, me: Member) -> None:
        if self._names is None or any(name not in self._known for name in self._names) or self.apart:
            return
        known = [self._known[name] for name in self._names if self._known[name].member != me]
        known.append(self._knowledge.registration(me))
        newest, now = newest_of(known), self.configuration
        if self._missing:
            self.waits = waiting(None, newest, self._named(), self.gone)
            first = begun(me, newest, self._named(), self.gone)
            if first is None or "propose" in self._calls:
                return
            then = self._calls.once("propose", lambda _: self._reread(registry))
            if then is not None:
                if not first.recovering:
                    self._knowledge.join(
                        me, 0
                    )  # or, should we never hear of our success, nobody could ever go on
                registry.create(self._path, encode(self._drawn(first)), then)
        elif self.certain and now is not None and "propose" not in self._calls:
            if now.recovering:
                self._say_again(registry, me)
            # The head alone says how long the chain shall be, or two with different settings would never
            # agree.
            wanted = self.wanted if now.head == me else None
            if now.confirmed and now.epoch > self._gone_since:
                self.gone = frozenset()  # it was said of the chain that had to be mended, and that is done
            new = next_of(now, known, wanted, self._reports, self.gone, doubted=self._stale)
            self.waits = None if new is not None else waiting(now, newest, (), self.gone)
            if new is not None and not new.recovering and not now.line_has(new.head):
                if new.head != me:
                    # who begins again alone proposes it, for it must have written down before that it may
                    return
                self._knowledge.join(me, now.epoch)
            if new is not None:
                new = self._drawn(new)
            elif now.head == me and not now.confirmed and not now.recovering:
                new = msgspec.structs.replace(now, confirmed=True)
            if new is not None:
                then = self._calls.once("propose", lambda _: self._reread(registry))
                if then is not None:
                    if me not in new.replicas:
                        # a head that gives its place away: the next one answers at once, perhaps before we
                        # hear of it
                        self.certain = False
                    registry.set(self._path, encode(new), self._version, then)

    def _drawn(self, new: Configuration) -> Configuration:
        return msgspec.structs.replace(new, id=self._draw())

    def _reread(self, registry: Registry) -> None:
        """Whether it was ours, another's or lost: what counts is what lies there now."""
        self.certain = self._missing = False
        self.tick(registry)
