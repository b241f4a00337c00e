"""Keeps a chain at its wanted length: registers this replica, watches the others, and changes the configuration.

Every replica has one; whoever sees first that the configuration should change proposes it by compare-and-set, and the
rest read the result. Level-triggered: `tick` does whatever is missing, so a lost call is merely made again.
"""

from collections.abc import Callable

import msgspec

from qanat.protocols.chain.configuration import (
    CaughtUp,
    Configuration,
    Failed,
    Member,
    Registration,
    decide,
    decode_configuration,
    decode_registration,
    encode,
)
from qanat.protocols.registry import Calls, Found, Registry, make_folders, node_name


class ChainManager:
    """`folder` is the chain's place in the coordinator, for example `/chains/eu`; `kept` says whether this replica
    still has what it stored, `keep` makes it say so from now on; `configured` is told of each configuration read."""

    def __init__(
        self,
        folder: str,
        address: str,
        wanted: int,
        kept: Callable[[], bool],
        keep: Callable[[], None],
        configured: Callable[[Member, Configuration], None],
    ) -> None:
        self._folder, self._address, self.wanted = folder, address, wanted
        self._kept, self._keep, self._configured = kept, keep, configured
        self._path, self._replicas = f"{folder}/configuration", f"{folder}/replicas"
        self.me: Member | None = None
        self.configuration: Configuration | None = None
        self.certain = False
        """What we have is what the coordinator had at our last word with it, and no event since says otherwise."""
        self._version = -1
        self._missing = False
        self._registered = False
        self._names: tuple[str, ...] | None = None
        self._known: dict[str, Registration] = {}
        self._calls = Calls()
        self._reports: list[CaughtUp | Failed] = []

    @property
    def registered(self) -> list[Member]:
        """Who is there, as last read."""
        return [each.member for each in self._known.values()]

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
            self.certain = False
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

    def _forget(self) -> None:
        self.certain = self._missing = self._registered = False
        self._names = None
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
        name = node_name(me.address, me.incarnation)
        registry.create(
            f"{self._replicas}/{name}", encode(Registration(me, self._kept())), then, ephemeral=True
        )

    def _read_configuration(self, registry: Registry) -> None:
        def read(found: Found) -> None:
            self._missing = found.problem == "no-node"
            if found.ok:
                self._version = found.version
                self.configuration = decode_configuration(found.data)
                self.certain = True
                self._reports = [each for each in self._reports if each.epoch == self.configuration.epoch]
                if self.me is not None:
                    self._configured(self.me, self.configuration)
            if found.ok or self._missing:
                self.tick(registry)

        then = self._calls.once("configuration", read)
        if then is not None:
            registry.get(self._path, then, watch=True)

    def _read_replicas(self, registry: Registry) -> None:
        def read(found: Found) -> None:
            if found.ok:
                self._names = found.children
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
        if self._names is None or any(name not in self._known for name in self._names):
            return
        if self._missing:
            then = self._calls.once("propose", lambda _: self._reread(registry))
            if then is not None:
                self._keep()  # or, should we never hear of our success, nobody could ever go on
                registry.create(self._path, encode(Configuration(1, (me,))), then)
        elif self.certain and self.configuration is not None and "propose" not in self._calls:
            registered = [self._known[name] for name in self._names]
            # The head alone says how long the chain shall be, or two with different settings would never agree.
            wanted = self.wanted if self.configuration.head == me else None
            new = decide(self.configuration, registered, wanted, self._reports)
            if new is None and self.configuration.head == me and not self.configuration.confirmed:
                new = msgspec.structs.replace(self.configuration, confirmed=True)
            if new is not None:
                then = self._calls.once("propose", lambda _: self._reread(registry))
                if then is not None:
                    if me not in new.replicas:
                        self.certain = False  # a head that gives its place away: the next one answers at once, perhaps before we hear of it
                    registry.set(self._path, encode(new), self._version, then)

    def _reread(self, registry: Registry) -> None:
        """Whether it was ours, another's or lost: what counts is what lies there now."""
        self.certain = self._missing = False
        self.tick(registry)
