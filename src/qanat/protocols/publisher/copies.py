"""Which copies of a dataset are there, and what each says of itself: one ephemeral node in the coordinator
for each of their lives."""

from collections.abc import Callable

from qanat.events.position import Position
from qanat.protocols.publisher.holdings import Registration, decode_registration, encode_registration
from qanat.protocols.registry import Calls, Found, Registry, make_folders


class Copies:
    """`changed` is called whenever more is known. Level-triggered: `tick` does whatever is missing."""

    def __init__(self, folder: str, address: str, division: str, changed: Callable[[Registry], None]) -> None:
        self._folder, self._address, self._division, self._changed = folder, address, division, changed
        self._path = f"{folder}/copies"
        self.me = ""
        """This life of this copy; empty without a session."""
        self.return_ticks = 1
        self.log: tuple[Position, Position] | None = None
        """The oldest and the newest position of this copy's own log."""
        self.names: tuple[str, ...] | None = None
        self._unread: int | None = None
        """For how many ticks this copy has not been able to read its log; None: it is."""
        self._announced: Registration | None = None
        self._registered = False
        self._said: dict[str, Registration] = {}
        self._stale: dict[str, None] = {}
        """Copies that have said something new of themselves."""
        self._ages: dict[str, int] = {}
        self._calls = Calls()

    # What is known

    @property
    def candidates(self) -> list[str] | None:
        """Who may serve, those that can read their logs, if any can; None while that is not known of all."""
        if self.names is None or any(name not in self._said for name in self.names):
            return None
        alike = [name for name in self.names if self.divides_alike(self._said[name].division)]
        return [name for name in alike if self.readable(name)] or alike

    def divides_alike(self, division: str) -> bool:
        """Who makes other shards, or other parts of them, has nothing to do with these."""
        return not division or not self._division or division == self._division

    def address(self, name: str) -> str:
        return self._said[name].address

    def oldest(self, name: str) -> Position:
        if name == self.me and self.log is not None:
            return self.log[0]
        return self._said[name].oldest

    def newest(self, name: str) -> Position:
        return self._said[name].newest

    def readable(self, name: str) -> bool:
        """As it says of itself; a datastore that is started again is waited for as long as a copy that comes
        back."""
        if name == self.me:
            return self._unread is None or self._unread < self.return_ticks
        return self._said[name].readable

    def stays(self, name: str) -> bool:
        """It has been there for a while."""
        return self._ages.get(name, 0) >= self.return_ticks

    # Inputs

    def forget(self, me: str) -> None:
        """A session began, or ended."""
        self.me = me
        self._registered = False
        self._announced = None
        self.names = None
        self._said, self._ages, self._stale = {}, {}, {}
        self._calls.forget()

    def on_event(self, path: str) -> None:
        if path == self._path:
            self.names = None
        elif path.startswith(self._path):
            self._stale[path.rpartition("/")[2]] = None

    def measured(self, log: tuple[Position, Position] | None) -> None:
        """From where to where this copy's log reaches; None: it cannot be read now."""
        if log is not None:
            self.log, self._unread = log, None
        elif self._unread is None:
            self._unread = 0

    def lost(self, registry: Registry, upto: Position) -> None:
        """This copy's log begins later than it was thought to."""
        if self.log is not None:
            self.log = (max(self.log[0], upto), max(self.log[1], upto))
            self._announce(registry)

    def tick(self, registry: Registry, *, later: bool) -> bool:
        """Whether this copy is registered, so that it may own something."""
        if later and self._unread is not None:
            self._unread += 1
        if not self.me:
            return False
        if not self._registered:
            self._register(registry)
            return False
        self._announce(registry)
        if self.names is None:
            self._read_all(registry)
        else:
            for name in self.names:
                if name not in self._said or name in self._stale:
                    self._read(registry, name)
                if later:
                    self._ages[name] = self._ages.get(name, 0) + 1
        return True

    # Calls

    @property
    def _registration(self) -> Registration | None:
        if self.log is None:
            return None
        return Registration(self._address, *self.log, self.readable(self.me), self._division)

    def _register(self, registry: Registry) -> None:
        said = self._registration
        if said is None:
            return

        def registered(found: Found) -> None:
            self._registered = found.ok or found.problem == "node-exists"
            if self._registered:
                self._announced = said if found.ok else None
                self._changed(registry)

        then = self._calls.once("register", registered)
        if then is not None:
            make_folders(registry, self._path)
            make_folders(registry, f"{self._folder}/applications")
            registry.create(f"{self._path}/{self.me}", encode_registration(said), then, ephemeral=True)

    def _announce(self, registry: Registry) -> None:
        said = self._registration
        if said is None or said == self._announced or not self._registered:
            return

        def announced(found: Found) -> None:
            if found.ok:
                self._announced = said

        then = self._calls.once("announce", announced)
        if then is not None:
            registry.set(f"{self._path}/{self.me}", encode_registration(said), -1, then)

    def _read_all(self, registry: Registry) -> None:
        def read(found: Found) -> None:
            if found.ok:
                self.names = found.children
                self._said = {name: self._said[name] for name in found.children if name in self._said}
                self._ages = {name: self._ages.get(name, 0) for name in found.children}
                self._stale = {name: None for name in found.children if name in self._stale}
                self._changed(registry)

        then = self._calls.once("copies", read)
        if then is not None:
            registry.children(self._path, then, watch=True)

    def _read(self, registry: Registry, name: str) -> None:
        def read(found: Found) -> None:
            if found.ok:
                said, before = decode_registration(found.data), self._said.get(name)
                if before is not None and said.readable and not before.readable:
                    self._ages[name] = 0  # as one that came back
                self._said[name] = said
                self._stale.pop(name, None)
                self._changed(registry)
            else:
                self.names = None

        then = self._calls.once(f"copy {name}", read)
        if then is not None:
            registry.get(f"{self._path}/{name}", then, watch=True)
