"""Who serves which part of which application, among the publishers of the copies of one dataset (Wormhole, section 3.3.2).

A part of an application is one node of the coordinator: its owner and its datamarkers together, changed by compare-and-set. So an owner that
was superseded cannot move a marker. A copy is there while its ephemeral node is; when an owner's has gone, the copy that is preferred
most among those that are there takes over. Level-triggered: `tick` does whatever is missing.
"""

from collections.abc import Mapping

import msgspec

from qanat.events.position import Position
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.holder import Holder, Part, preferred
from qanat.protocols.publisher.holdings import (
    CROWDED_BYTES,
    NODE_BYTES,
    Holding,
    decode_holding,
    encode_holding,
    too_many,
)
from qanat.protocols.registry import Calls, Found, Registry, ignore, make_folders, node_name


class Registration(msgspec.Struct, frozen=True):
    """What a copy says of itself in its ephemeral node: who it is, and what its log has."""

    address: str
    oldest: Position
    """Everything after it."""
    newest: Position
    readable: bool = True
    """Its log can be read at all; one whose datastore is away, while it is here itself, is worth less than any other."""


encode = msgspec.msgpack.Encoder().encode
decode_registration = msgspec.msgpack.Decoder(Registration).decode

CROWDED, UNWRITTEN = 1, 2
FULL = "bad-arguments"
"""What a coordinator answers that has no room for it."""
PATIENCE_TICKS = 150
"""Until what the coordinator has no room for is tried again: half a minute."""


class _Seen:
    """What is known of one part's node."""

    __slots__ = ("certain", "crowd", "dirty", "holding", "missing", "patience", "version")

    def __init__(self) -> None:
        self.certain = self.missing = self.dirty = False
        self.holding: Holding | None = None
        self.version = -1
        self.crowd = 0
        """CROWDED: its record has no room for more shards; UNWRITTEN: it does not fit."""
        self.patience = 0
        """Ticks until it is tried again."""


class Owners:
    """`folder` is the dataset's place in the coordinator, for example `/publishers/shop`."""

    def __init__(self, folder: str, address: str, holder: Holder, return_ticks: int) -> None:
        self._folder, self._address, self._holder = folder, address, holder
        self._copies_path = f"{folder}/copies"
        self.return_ticks = return_ticks
        self.me = ""
        self.outlasts_us = 0
        """How long the longest lease may last that this copy has granted, or wants to."""
        self.log: tuple[Position, Position] | None = None
        """The oldest and the newest position of this copy's own log."""
        self.owned: dict[Part, None] = {}
        self._unread: int | None = None
        """For how many ticks this copy has not been able to read its log; None: it is."""
        self._announced: Registration | None = None
        self._registered = False
        self._names: tuple[str, ...] | None = None
        self._copies: dict[str, Registration] = {}
        self._stale: dict[str, None] = {}
        """Copies that have said something new of themselves."""
        self._ages: dict[str, int] = {}
        self._seen: dict[Part, _Seen] = {}
        self._configs: Mapping[str, ApplicationConfig] = {}
        self._calls = Calls()
        self.refused = 0
        """Records that were too large to be written."""

    # Inputs

    def on_opened(self, registry: Registry, session: int) -> None:
        self._forget()
        self.me = node_name(self._address, session)
        self.tick(registry)

    def on_expired(self) -> None:
        self._forget()
        self.me = ""
        owned, self.owned = self.owned, {}
        for part in owned:
            self._holder.lost(part)

    def on_event(self, registry: Registry, path: str) -> None:
        if path == self._copies_path:
            self._names = None
        elif path.startswith(self._copies_path):
            self._stale[path.rpartition("/")[2]] = None
        for part, seen in self._seen.items():
            if path == self._path(part):
                seen.certain = seen.missing = False
        self.tick(registry)

    def configure(self, configs: Mapping[str, ApplicationConfig], parts: int) -> None:
        """These applications are to be served; what is owned of others is no more."""
        self._configs = configs
        wanted = {(name, part): None for name in configs for part in range(parts)}
        self._seen = {part: self._seen.get(part) or _Seen() for part in wanted}
        for part in [part for part in self.owned if part not in wanted]:
            del self.owned[part]
            self._holder.lost(part)

    def changed(self, part: Part) -> None:
        """Markers, or shards; to be written."""
        if part in self._seen:
            self._seen[part].dirty = True

    def lasts(self, outlasts_us: int) -> None:
        """A lease that may last so long is wanted."""
        if outlasts_us > self.outlasts_us:
            self.outlasts_us = outlasts_us
            for part in self.owned:
                self.changed(part)

    def recorded_us(self, application: str) -> int:
        """No lease of an application may last longer: others would not wait for it."""
        holdings = [self._seen[part].holding for part in self.owned if part[0] == application]
        known = [holding.outlasts_us for holding in holdings if holding is not None]
        return min(known, default=self.outlasts_us)

    def measured(self, log: tuple[Position, Position] | None) -> None:
        """From where to where this copy's log reaches; None: it cannot be read now."""
        if log is not None:
            self.log, self._unread = log, None
        elif self._unread is None:
            self._unread = 0

    def tick(self, registry: Registry, *, later: bool = False) -> None:
        """Do what is missing; call it now and then, `later` if time has passed."""
        if later and self._unread is not None:
            self._unread += 1
        if not self.me:
            return
        if not self._registered:
            self._register(registry)
            return
        self._announce(registry)
        if self._names is None:
            self._read_copies(registry)
        else:
            for name in self._names:
                if name not in self._copies or name in self._stale:
                    self._read_copy(registry, name)
                if later:
                    self._ages[name] = self._ages.get(name, 0) + 1
        for part, seen in list(self._seen.items()):
            if later and seen.patience:
                seen.patience -= 1
            if not seen.certain and not seen.missing:
                self._read_part(registry, part, seen)
            else:
                self._decide(registry, part, seen)

    def _forget(self) -> None:
        self._registered = False
        self._announced = None
        self._names = None
        self._copies, self._ages, self._stale = {}, {}, {}
        for seen in self._seen.values():
            seen.certain = seen.missing = seen.dirty = False
        self._calls.forget()

    def _path(self, part: Part) -> str:
        return f"{self._folder}/applications/{part[0]}/{part[1]}"

    # Who is preferred

    def best(self, part: Part) -> str | None:
        """The copy that should serve a part, of those that are there; None while that is not known.

        Updates that any copy has are delivered: so those whose logs reach back to the datamarkers come first, and where none does, the one
        that reaches furthest. Copies that cannot read their logs come last.
        """
        if self._names is None or any(name not in self._copies for name in self._names):
            return None
        names = [name for name in self._names if self._readable(name)] or self._names
        needed, oldest = self._needed(part), {name: self._oldest(name) for name in names}
        reach = [name for name in names if needed is None or oldest[name] <= needed]
        if not reach and oldest:
            reach = [name for name in names if oldest[name] == min(oldest.values())]
        wanted = self._configs[part[0]].copies
        return preferred(part, wanted, {name: self._copies[name].address for name in reach})

    def _oldest(self, name: str) -> Position:
        if name == self.me and self.log is not None:
            return self.log[0]
        return self._copies[name].oldest

    def _readable(self, name: str) -> bool:
        """As it says of itself; a datastore that is started again is waited for as long as a copy that comes back."""
        if name == self.me:
            return self._unread is None or self._unread < self.return_ticks
        return self._copies[name].readable

    def _needed(self, part: Part) -> Position | None:
        if part in self.owned:
            return self._holder.needs(part)[0]
        return self._recorded(part)

    def _recorded(self, part: Part) -> Position | None:
        """The first of the datamarkers that the coordinator is known to have."""
        holding = self._seen[part].holding
        if holding is None:
            return None
        marks = [*holding.kept.floors.values(), *(flow.position for flow in holding.kept.flows.values())]
        return min(marks, default=None)

    def settled(self) -> Position | None:
        """No part has a datamarker on record before this; None while that is not known of all."""
        marks = [None if seen.missing else self._recorded(part) for part, seen in self._seen.items()]
        known = [mark for mark in marks if mark is not None]
        return min(known) if known and len(known) == len(marks) else None

    def lost(self, registry: Registry, upto: Position) -> None:
        """This copy's log begins later than it was thought to."""
        if self.log is not None:
            self.log = (max(self.log[0], upto), max(self.log[1], upto))
            self._announce(registry)

    # Decisions

    def _decide(self, registry: Registry, part: Part, seen: _Seen) -> None:
        best = self.best(part)
        if best is None or f"part {part}" in self._calls:
            return
        if seen.missing:
            if best == self.me and not seen.patience:
                self._create(registry, part, seen)
            return
        holding = seen.holding
        if holding is None or self._names is None:
            return
        if holding.owner == self.me:
            if part not in self.owned:
                if holding.outlasts_us < self.outlasts_us:
                    if not seen.patience:
                        self._write(registry, part, seen, msgspec.structs.replace(holding, outlasts_us=self.outlasts_us))  # fmt: skip
                    return
                self.owned[part] = None
                seen.crowd = seen.patience = 0
                self._holder.acquired(
                    part, holding.kept, clean=holding.clean, outlasts_us=holding.outlasts_us
                )
            elif best != self.me and not seen.patience and self._is_ready(part, best):
                if self._holder.released(part):
                    state = Holding(best, True, self._holder.state(part), self.outlasts_us)
                    if not self._record(registry, part, seen, state) and not self._serves(part):
                        self._write(registry, part, seen, msgspec.structs.replace(state, kept=holding.kept))  # fmt: skip
            else:
                self._holder.keeps(part)
                if seen.dirty and not seen.patience:
                    seen.dirty = False
                    longest = max(self.outlasts_us, holding.outlasts_us if self._holder.waits(part) else 0)
                    self._record(registry, part, seen, Holding(self.me, holding.clean, self._holder.state(part), longest))  # fmt: skip
        elif part in self.owned:
            del self.owned[part]
            self._holder.lost(part)
        elif holding.owner not in self._names and best == self.me and not seen.patience:
            longest = max(self.outlasts_us, holding.outlasts_us)
            self._write(registry, part, seen, Holding(self.me, False, holding.kept, longest))

    def _is_ready(self, part: Part, other: str) -> bool:
        """Its log has what is marked, and it has been there for a while; or this one cannot go on. What is not on record it would not go on with."""
        if self._serves(part) and (
            self._ages.get(other, 0) < self.return_ticks or self._seen[part].crowd == UNWRITTEN
        ):
            return False
        return self._copies[other].newest >= self._holder.needs(part)[1]

    def _serves(self, part: Part) -> bool:
        """Its log lacks nothing, and is not away."""
        return self._readable(self.me) and self._oldest(self.me) <= self._holder.needs(part)[0]

    def _create(self, registry: Registry, part: Part, seen: _Seen) -> None:
        if part in self.owned:  # somebody deleted it
            kept = self._holder.state(part)
        else:
            begun = self._holder.begins(part)
            if begun is None:
                return
            kept = begun
        holding = Holding(self.me, True, kept, self.outlasts_us)
        data = encode_holding(holding)
        if not self._fits(part, seen, holding, len(data)):
            return

        def created(found: Found) -> None:
            if found.problem == FULL:
                self._no_room(part, seen, holding)
            self._reread(registry, part)

        then = self._calls.once(f"part {part}", created)
        if then is not None:
            make_folders(registry, f"{self._folder}/applications/{part[0]}")
            registry.create(self._path(part), data, then)

    def _record(self, registry: Registry, part: Part, seen: _Seen, holding: Holding) -> bool:
        """If it fits; else what was written last stays on record, so that datamarkers lag there."""
        data = encode_holding(holding)
        if not self._fits(part, seen, holding, len(data)):
            return False
        self._write(registry, part, seen, holding, data)
        return True

    def _fits(self, part: Part, seen: _Seen, holding: Holding, size: int) -> bool:
        if size > NODE_BYTES:
            self._no_room(part, seen, holding)
            return False
        self._crowd(part, seen, holding, CROWDED if size > CROWDED_BYTES else 0)
        return True

    def _no_room(self, part: Part, seen: _Seen, holding: Holding) -> None:
        """It is not tried again at once: it would be refused again."""
        self.refused += 1
        seen.dirty, seen.patience = part in self.owned, PATIENCE_TICKS
        self._crowd(part, seen, holding, UNWRITTEN)

    def _crowd(self, part: Part, seen: _Seen, holding: Holding, crowd: int) -> None:
        if part in self.owned and crowd != seen.crowd:
            seen.crowd, shards = crowd, len(holding.kept.flows)
            self._holder.crowded(part, too_many(*part, shards, written=crowd != UNWRITTEN) if crowd else "")

    def _write(
        self, registry: Registry, part: Part, seen: _Seen, holding: Holding, data: bytes = b""
    ) -> None:
        def written(found: Found) -> None:
            if found.problem == FULL:
                self._no_room(part, seen, holding)
            if found.ok:
                seen.holding, seen.version, seen.certain = holding, found.version, True
                if holding.owner == self.me:
                    self._decide(registry, part, seen)
                    return
            self._reread(registry, part)

        then = self._calls.once(f"part {part}", written)
        if then is None:
            seen.dirty = True
        else:
            registry.set(self._path(part), data or encode_holding(holding), seen.version, then)

    def _reread(self, registry: Registry, part: Part) -> None:
        """Whether it was ours, another's or lost: what counts is what lies there now."""
        seen = self._seen.get(part)
        if seen is not None:
            seen.certain = seen.missing = False
            seen.dirty = part in self.owned
            self.tick(registry)

    def remove(self, registry: Registry, name: str) -> None:
        """An application is no more: one of this name begins anew."""
        for part in self.owned:
            if part[0] == name:
                registry.delete(self._path(part), -1, ignore)

    # Calls

    @property
    def _registration(self) -> Registration | None:
        return None if self.log is None else Registration(self._address, *self.log, self._readable(self.me))

    def _register(self, registry: Registry) -> None:
        said = self._registration
        if said is None:
            return

        def registered(found: Found) -> None:
            self._registered = found.ok or found.problem == "node-exists"
            if self._registered:
                self._announced = said if found.ok else None
                self.tick(registry)

        then = self._calls.once("register", registered)
        if then is not None:
            make_folders(registry, self._copies_path)
            make_folders(registry, f"{self._folder}/applications")
            registry.create(f"{self._copies_path}/{self.me}", encode(said), then, ephemeral=True)

    def _announce(self, registry: Registry) -> None:
        said = self._registration
        if said is None or said == self._announced or not self._registered:
            return

        def announced(found: Found) -> None:
            if found.ok:
                self._announced = said

        then = self._calls.once("announce", announced)
        if then is not None:
            registry.set(f"{self._copies_path}/{self.me}", encode(said), -1, then)

    def _read_copies(self, registry: Registry) -> None:
        def read(found: Found) -> None:
            if found.ok:
                self._names = found.children
                self._copies = {name: self._copies[name] for name in found.children if name in self._copies}
                self._ages = {name: self._ages.get(name, 0) for name in found.children}
                self.tick(registry)

        then = self._calls.once("copies", read)
        if then is not None:
            registry.children(self._copies_path, then, watch=True)

    def _read_copy(self, registry: Registry, name: str) -> None:
        def read(found: Found) -> None:
            if found.ok:
                said, before = decode_registration(found.data), self._copies.get(name)
                if before is not None and said.readable and not before.readable:
                    self._ages[name] = 0  # as one that came back
                self._copies[name] = said
                self._stale.pop(name, None)
                self.tick(registry)
            else:
                self._names = None

        then = self._calls.once(f"copy {name}", read)
        if then is not None:
            registry.get(f"{self._copies_path}/{name}", then, watch=True)

    def _read_part(self, registry: Registry, part: Part, seen: _Seen) -> None:
        def read(found: Found) -> None:
            seen.missing = found.problem == "no-node"
            if found.ok:
                seen.holding, seen.version, seen.certain = decode_holding(found.data), found.version, True
            if found.ok or seen.missing:
                self._decide(registry, part, seen)

        then = self._calls.once(f"part {part}", read)
        if then is not None:
            registry.get(self._path(part), then, watch=True)
