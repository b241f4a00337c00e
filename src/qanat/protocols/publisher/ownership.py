"""Who serves which part of which application, among the publishers of the copies of one dataset (Wormhole,
section 3.3.2).

A part of an application is one node of the coordinator: its owner and its datamarkers together, changed by
compare-and-set. So an owner that was superseded cannot move a marker. A copy is there while its ephemeral
node is; when an owner's has gone, the copy that is preferred most among those that are there takes over.
Level-triggered: `tick` does whatever is missing.
"""

from collections.abc import Mapping

import msgspec

from qanat.events.position import Position
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.copies import Copies
from qanat.protocols.publisher.holder import Holder, Part, preferred
from qanat.protocols.publisher.holdings import (
    CROWDED_BYTES,
    NODE_BYTES,
    Holding,
    decode_holding,
    divided_otherwise,
    encode_holding,
    too_many,
)
from qanat.protocols.publisher.records import Kept
from qanat.protocols.registry import Calls, Found, Registry, ignore, make_folders, node_name

CROWDED, UNWRITTEN = 1, 2
FULL = "bad-arguments"
"""What a coordinator answers that has no room for it."""
AT_ONCE = 150
"""Parts of which something is asked at a time: a session has no room for more calls than some
(`session.calls_max`), and a new part needs five."""
PATIENCE_TICKS = 150
"""Until what the coordinator has no room for is tried again: half a minute."""


class _Seen:
    """What is known of one part's node."""

    __slots__ = ("certain", "crowd", "dirty", "holding", "missing", "patience", "trouble", "version")

    def __init__(self) -> None:
        self.certain = self.missing = self.dirty = False
        self.holding: Holding | None = None
        self.version = -1
        self.crowd = 0
        """CROWDED: its record has no room for more shards; UNWRITTEN: it does not fit."""
        self.patience = 0
        """Ticks until it is tried again."""
        self.trouble = ""
        """Why it is not served here, though it should be."""


class Owners:
    """`folder` is the dataset's place in the coordinator, for example `/publishers/shop`. Copies of another
    `division` of it are not for its parts."""

    def __init__(
        self, folder: str, address: str, holder: Holder, return_ticks: int, division: str = ""
    ) -> None:
        self._folder, self._address, self._holder, self._division = folder, address, holder, division
        self.copies = Copies(folder, address, division, self.tick)
        self.copies.return_ticks = return_ticks
        self.outlasts_us = 0
        """How long the longest lease may last that this copy has granted, or wants to."""
        self.owned: dict[Part, None] = {}
        self._seen: dict[Part, _Seen] = {}
        self._configs: Mapping[str, ApplicationConfig] = {}
        self._calls = Calls()
        self._turn = 0
        """The part that is next, if there were too many for one tick."""
        self._ended: dict[str, None] = {}
        """Applications that were served here, and taken away."""
        self.refused = 0
        """Records that were too large to be written."""

    @property
    def me(self) -> str:
        return self.copies.me

    # Inputs

    def on_opened(self, registry: Registry, session: int) -> None:
        self._forget(node_name(self._address, session))
        self.tick(registry)

    def on_expired(self) -> None:
        self._forget("")
        owned, self.owned = self.owned, {}
        for part in owned:
            self._holder.lost(part)

    def on_event(self, registry: Registry, path: str) -> None:
        self.copies.on_event(path)
        seen = self._seen.get(part := self._part(path))
        if seen is None:
            self.tick(registry)
        else:
            seen.certain = seen.missing = False
            self._read_part(registry, part, seen)

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

    def tick(self, registry: Registry, *, later: bool = False) -> None:
        """Do what is missing; call it now and then, `later` if time has passed."""
        if not self.copies.tick(registry, later=later):
            return
        parts = list(self._seen.items())
        for _, seen in parts if later else []:
            seen.patience = max(0, seen.patience - 1)
        turn, self._turn = self._turn, 0
        for at, (part, seen) in enumerate(parts[turn:] + parts[:turn]):
            if len(self._calls) >= AT_ONCE:
                self._turn = (turn + at) % len(parts)
                return
            if not seen.certain and not seen.missing:
                self._read_part(registry, part, seen)
            else:
                self._decide(registry, part, seen)

    def _forget(self, me: str) -> None:
        self.copies.forget(me)
        for seen in self._seen.values():
            seen.certain = seen.missing = seen.dirty = False
        self._calls.forget()

    def _path(self, part: Part) -> str:
        return f"{self._folder}/applications/{part[0]}/{part[1]}"

    def _part(self, path: str) -> Part:
        application, _, number = path.removeprefix(f"{self._folder}/applications/").rpartition("/")
        return application, int(number) if number.isdecimal() else -1

    # Who is preferred

    def best(self, part: Part) -> str | None:
        """The copy that should serve a part, of those that are there; empty if it is none of them; None while
        that is not known.

        Updates that any copy has are delivered: so those whose logs reach back to the datamarkers come first,
        and where none does, the one that reaches furthest. Copies that cannot read their logs come last.
        """
        names = self.copies.candidates
        if names is None:
            return None
        needed, oldest = self._needed(part), {name: self.copies.oldest(name) for name in names}
        reach = [name for name in names if needed is None or oldest[name] <= needed]
        if not reach and oldest:
            reach = [name for name in names if oldest[name] == min(oldest.values())]
        wanted = self._configs[part[0]].copies
        return preferred(part, wanted, {name: self.copies.address(name) for name in reach}) or ""

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

    # Decisions

    def _decide(self, registry: Registry, part: Part, seen: _Seen) -> None:
        best = self.best(part)
        if best is None or f"part {part}" in self._calls:
            return
        if seen.missing:
            mine = best == self.me or (not best and part in self.owned)
            if not best and not mine:
                self._tell(part, seen, self._nobody(part))
            elif self._first_is_alike(part, seen):
                self._tell(part, seen, "")
                if mine and not seen.patience:
                    self._create(registry, part, seen)
            return
        holding = seen.holding
        if holding is None or self.copies.names is None or not self._is_alike(part, seen, holding):
            return
        lacks = part in self.owned and best not in (self.me, "") and not self._serves(part)
        if lacks and not self._is_ready(part, best):
            self._tell(part, seen, self._waits(part, best))
        else:
            unserved = not best and holding.owner not in self.copies.names
            self._tell(part, seen, self._nobody(part) if unserved else "")
        if holding.owner == self.me:
            if part not in self.owned:
                if holding.outlasts_us < self.outlasts_us:
                    if not seen.patience:
                        self._write(
                            registry,
                            part,
                            seen,
                            msgspec.structs.replace(holding, outlasts_us=self.outlasts_us),
                        )
                    return
                self.owned[part] = None
                seen.crowd = seen.patience = 0
                self._holder.acquired(
                    part, holding.kept, clean=holding.clean, outlasts_us=holding.outlasts_us
                )
            elif best not in (self.me, "") and not seen.patience and self._is_ready(part, best):
                if self._holder.released(part):
                    state = self._holding(best, self._holder.state(part))
                    if not self._record(registry, part, seen, state) and not self._serves(part):
                        self._write(registry, part, seen, msgspec.structs.replace(state, kept=holding.kept))
            else:
                if not lacks:
                    self._holder.keeps(part)
                if seen.dirty and not seen.patience:
                    seen.dirty = False
                    longest = max(self.outlasts_us, holding.outlasts_us if self._holder.waits(part) else 0)
                    self._record(
                        registry,
                        part,
                        seen,
                        self._holding(self.me, self._holder.state(part), longest, clean=holding.clean),
                    )
        elif part in self.owned:
            del self.owned[part]
            self._holder.lost(part)
        elif holding.owner not in self.copies.names and best == self.me and not seen.patience:
            longest = max(self.outlasts_us, holding.outlasts_us)
            self._write(registry, part, seen, self._holding(self.me, holding.kept, longest, clean=False))

    def _is_alike(self, part: Part, seen: _Seen, holding: Holding) -> bool:
        """Datamarkers of other shards are not this copy's to go on with."""
        if self.copies.divides_alike(holding.division):
            return True
        if part in self.owned:  # somebody took its record away, and another came first
            del self.owned[part]
            self._holder.lost(part)
        self._tell(part, seen, divided_otherwise(*part, holding.division, self._division))
        return False

    def _first_is_alike(self, part: Part, seen: _Seen) -> bool:
        """Every division has a first part: whoever has the record of that says which shards the others are
        of."""
        first = self._seen[part[0], 0]
        if first is seen or not self._division:
            return True
        if not first.certain or first.holding is None:
            return False
        return self._is_alike(part, seen, first.holding)

    def _nobody(self, part: Part) -> str:
        copies = ", ".join(self._configs[part[0]].copies)
        if not copies:
            return ""
        return (
            f"nobody serves part {part[1]} of {part[0]}: of the copies that it names ({copies}) none is there"
        )

    def _waits(self, part: Part, other: str) -> str:
        return (
            f"part {part[1]} of {part[0]} waits for {self.copies.address(other)}: this copy's log has no"
            f" longer what comes next, and the log there, which has it, is at {self.copies.newest(other)},"
            " behind what is marked"
        )

    def _tell(self, part: Part, seen: _Seen, why: str) -> None:
        if why != seen.trouble:
            seen.trouble = why
            self._holder.troubled(part, why)

    def _is_ready(self, part: Part, other: str) -> bool:
        """Its log has what is marked, and it has been there for a while; or this one cannot go on. What is
        not on record it would not go on with."""
        if self._serves(part) and (not self.copies.stays(other) or self._seen[part].crowd == UNWRITTEN):
            return False
        return self.copies.newest(other) >= self._holder.needs(part)[1]

    def _serves(self, part: Part) -> bool:
        """Its log lacks nothing, and is not away."""
        return self.copies.readable(self.me) and self.copies.oldest(self.me) <= self._holder.needs(part)[0]

    def _create(self, registry: Registry, part: Part, seen: _Seen) -> None:
        if part in self.owned:  # somebody deleted it
            kept = self._holder.state(part)
        else:
            begun = self._holder.begins(part)
            if begun is None:
                return
            kept = begun
        clean = (
            seen.holding is None and part[0] not in self._ended
        )  # else somebody may be at work on what was sent before
        holding = self._holding(self.me, kept, clean=clean)
        data = encode_holding(holding)
        if not self._fits(part, seen, holding, len(data)):
            return

        def created(found: Found) -> None:
            if self._seen.get(part) is not seen:
                return  # the application has gone
            if found.problem == FULL:
                self._no_room(part, seen, holding)
            self._reread(registry, part)

        then = self._calls.once(f"part {part}", created)
        if then is not None:
            make_folders(registry, f"{self._folder}/applications/{part[0]}")
            registry.create(self._path(part), data, then)

    def _holding(
        self, owner: str, kept: Kept, outlasts_us: int | None = None, *, clean: bool = True
    ) -> Holding:
        longest = self.outlasts_us if outlasts_us is None else outlasts_us
        return Holding(owner, clean, kept, longest, self._division)

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
            self._holder.troubled(part, too_many(*part, shards, written=crowd != UNWRITTEN) if crowd else "")

    def _write(
        self, registry: Registry, part: Part, seen: _Seen, holding: Holding, data: bytes = b""
    ) -> None:
        def written(found: Found) -> None:
            if self._seen.get(part) is not seen:
                return
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
            self._read_part(registry, part, seen)

    def remove(self, registry: Registry, name: str) -> None:
        """An application is no more: one of this name begins anew."""
        self._ended[name] = None
        for part in self.owned:
            if part[0] == name:
                registry.delete(self._path(part), -1, ignore)

    # Calls

    def _read_part(self, registry: Registry, part: Part, seen: _Seen) -> None:
        def read(found: Found) -> None:
            if self._seen.get(part) is not seen:
                return
            seen.missing = found.problem == "no-node"
            if found.ok:
                seen.holding, seen.version, seen.certain = decode_holding(found.data), found.version, True
            if found.ok or seen.missing:
                self._decide(registry, part, seen)

        then = self._calls.once(f"part {part}", read)
        if then is not None:
            registry.get(self._path(part), then, watch=True)
