"""Routes: which updates of a log go into which streams, and under which name the streams keep how far they
have them."""

import hashlib
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from qanat.capture.choice import Choice
from qanat.capture.json_text import encode
from qanat.capture.sharding import Sharding
from qanat.events.batch import stream_id
from qanat.events.filters import Filter, parse

SHARD_FIELD = "shard"
_NAME_BYTES = 200


def fields_in(stream: str) -> set[str] | None:
    """What stands in braces in a route's stream; None if the braces make no sense."""
    try:
        parts = list(string.Formatter().parse(stream))
    except ValueError:
        return None
    if any(spec or conversion for _, _, spec, conversion in parts):
        return None
    return {name for _, name, _, _ in parts if name is not None}


def bad_name(stream: str) -> str:
    """Why a stream cannot have this name; empty if it can."""
    if not stream or len(stream.encode()) > _NAME_BYTES or not stream.isprintable():
        return (
            f"{stream[:80]!r} is no name of a stream: expected 1 to {_NAME_BYTES} bytes that can be printed"
        )
    return ""


@dataclass(frozen=True)
class Way:
    """One route of a source. `where` is a filter's text: this goes to other processes."""

    stream: str
    tables: tuple[str, ...] = ()
    where: str = ""

    @property
    def sharded(self) -> bool:
        return bool(fields_in(self.stream))

    @cached_property
    def filter(self) -> Filter | None:
        return parse(self.where) if self.where else None

    @cached_property
    def choice(self) -> Choice:
        return Choice(self.tables)

    def name(self, shard: str = "") -> str:
        return self.stream.format(**{SHARD_FIELD: shard}) if self.sharded else self.stream.format()


@dataclass(frozen=True)
class Routes:
    """Everything that decides what becomes of an update: the source's own choice, and its ways."""

    ways: tuple[Way, ...]
    tables: tuple[str, ...] = ()
    where: str = ""
    shards: str = ""
    unrouted: str = "drop"
    largest_bytes: int = 16 * 1024 * 1024 - 65536

    @cached_property
    def sharding(self) -> Sharding:
        return Sharding.parse(self.shards)

    @cached_property
    def choice(self) -> Choice:
        return Choice(self.tables)

    @cached_property
    def filter(self) -> Filter | None:
        return parse(self.where) if self.where else None

    @property
    def mark(self) -> str:
        """The same for the same routes, another for others: what a checkpoint is compared with."""
        listed = sorted(_described(self, way) for way in self.ways)
        return hashlib.sha256(encode([listed, self.unrouted])).hexdigest()[:12]

    def streams(self) -> tuple[str, ...] | None:
        """All streams that there can be; None if that depends on the updates."""
        found: dict[str, None] = {}
        for way in self.ways:
            if not way.sharded:
                found[way.name()] = None
            elif not self.sharding.shards:
                return None
            else:
                found |= dict.fromkeys(way.name(str(shard)) for shard in range(self.sharding.shards))
        return tuple(found)

    def source_of(self, source: str, stream: str) -> str:
        """The name under which a stream keeps how far it has this log.

        A stream drops positions that it has. So whatever may have other updates at the same positions needs
        another name: another dataset, and another choice of the same log. The whole log in one stream has the
        name of the log itself, as with `changes --into`.
        """
        leading = [way for way in self.ways if self._leads(way, stream)]
        if any(not (way.sharded or way.tables or way.where) for way in leading) and not (
            self.tables or self.where
        ):
            return source
        listed = sorted(_described(self, way) for way in leading)
        return f"{source}?{hashlib.sha256(encode(listed)).hexdigest()[:12]}"

    def leads_to(self, stream: str) -> bool:
        """Whether a stream of this name could get something."""
        return any(self._leads(way, stream) for way in self.ways)

    def _leads(self, way: Way, stream: str) -> bool:
        if not way.sharded:
            return way.name() == stream
        before, after = way.name("\0").split("\0")[0], way.name("\0").split("\0")[-1]
        return stream.startswith(before) and stream.endswith(after)


def _described(routes: Routes, way: Way) -> str:
    """Equal for filters that print alike."""
    where = " and ".join(f"({each})" for each in (routes.filter, way.filter) if each is not None)
    by = str(routes.sharding) if way.sharded or where else ""
    tables = [sorted(set(routes.tables)), sorted(set(way.tables))]
    return encode([way.stream, tables, where, by]).decode()


def colliding(streams: Sequence[str]) -> str:
    """Two names that a server takes for one; empty if there are none."""
    numbers: dict[int, str] = {}
    for stream in streams:
        other = numbers.setdefault(stream_id(stream), stream)
        if other != stream:
            return f"{stream!r} and {other!r} have the same identifier: take another name"
    return ""
