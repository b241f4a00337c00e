"""What a publisher keeps of its applications: where each began, its shards, its datamarkers."""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import TypeAlias, assert_never

import msgspec

from qanat.events.position import Position
from qanat.protocols.publisher.witness import Seen, Witness

Marks: TypeAlias = tuple[tuple[Position, tuple[str, ...]], ...]
Range: TypeAlias = tuple[Position, Position]
"""What is after the first and up to the second."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """Of this application, and of what it has in this part, everything after the position counts."""

    application: str
    part: int
    position: Position
    snapshot: int = -1
    """It begins with rows; and their sequence number."""
    seen: Seen = None
    """The last update that the log had up to there."""


class Noticed(msgspec.Struct, frozen=True, tag=True):
    """The part has these shards too; nothing of them came before the position but what was lost, which they
    are to be told. On disk before any marker that is further."""

    application: str
    part: int
    shards: tuple[str, ...]
    after: Position
    lost: Range | None = None
    seen: Seen = None


class Missed(msgspec.Struct, frozen=True, tag=True):
    """The log no longer had this when shards were looked for in it: those that were not known may have lost
    something. `shard` stands for them."""

    application: str
    part: int
    shard: str
    lost: Range


class Marked(msgspec.Struct, frozen=True, tag=True):
    """Datamarkers; and of each part how far its shards are known. What a shard was to be told before is
    acknowledged with it."""

    application: str
    marks: Marks
    floors: tuple[tuple[int, Position], ...] = ()
    seen: tuple[Seen, ...] = ()
    """For each of the marks, and then for each of the floors, the last update that the log had up to
    there."""


class Moved(msgspec.Struct, frozen=True, tag=True):
    """By an operator, perhaps back; of no shards: all, and those that will be found."""

    application: str
    position: Position
    shards: tuple[str, ...] = ()


class Here(msgspec.Struct, frozen=True, tag=True):
    """A subscriber has a session, whose lease may last so long on any clock. On disk before the subscriber
    knows of it."""

    application: str
    subscriber: str
    outlasts_us: int


class Left(msgspec.Struct, frozen=True, tag=True):
    """It has none any more, and works on nothing."""

    application: str
    subscriber: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The application is no more; one of this name begins anew."""

    application: str


Change: TypeAlias = Began | Noticed | Missed | Marked | Moved | Here | Left
Record: TypeAlias = Change | Ended
NOBODY = "\0"
"""No shard is called so."""
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode


class KeptFlow(msgspec.Struct, frozen=True):
    part: int
    position: Position
    lost: Range | None = None
    """What it is still to be told."""
    seen: Seen = None


class Kept(msgspec.Struct):
    """An application as the records leave it: its shards, and by part how far they are known, and what was
    lost of others."""

    floors: dict[int, Position] = {}
    lost: dict[int, Range] = {}
    flows: dict[str, KeptFlow] = {}
    snapshots: dict[int, int] = {}
    """By part, the sequence number of the rows with which it began."""
    seen: dict[int, Witness] = {}
    """By part, the last update that the log had up to the floor."""
    holders: dict[str, int] = {}
    """Subscribers that may be at work, and for how long after the publisher has gone."""


def joined(one: Range | None, other: Range) -> Range:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def replay(saved: Iterable[bytes]) -> dict[str, Kept]:
    """Applications by name."""
    kept: dict[str, Kept] = {}
    for each in saved:
        record = decode(each)
        if isinstance(record, Ended):
            kept.pop(record.application, None)
        else:
            apply(kept.setdefault(record.application, Kept()), record)
    return kept


def apply(to: Kept, record: Change) -> None:
    match record:
        case Began(_, part, position, snapshot, seen):
            _set_floor(to, part, position, seen)
            if snapshot >= 0:
                to.snapshots[part] = snapshot
        case Noticed(_, part, shards, after, lost, seen):
            for shard in shards:
                to.flows.setdefault(shard, KeptFlow(part, after, lost, seen))
        case Missed(_, part, shard, lost):
            to.lost[part] = joined(to.lost.get(part), lost)
            flow = to.flows.get(shard)
            if flow is not None:
                to.flows[shard] = msgspec.structs.replace(flow, lost=joined(flow.lost, lost))
        case Marked(_, marks, floors, known):
            witnesses = chain(known, repeat(None))
            for (position, shards), seen in zip(marks, witnesses, strict=False):
                for shard in shards:
                    if shard in to.flows:
                        to.flows[shard] = KeptFlow(to.flows[shard].part, position, None, seen)
            for (part, floor), seen in zip(floors, witnesses, strict=False):
                _set_floor(to, part, floor, seen)
        case Moved(_, position, shards):
            for shard in shards or tuple(to.flows):
                if shard in to.flows:
                    to.flows[shard] = KeptFlow(to.flows[shard].part, position)
            if not shards:
                to.floors = dict.fromkeys(to.floors, position)
                to.seen.clear()
                to.lost.clear()
                to.snapshots.clear()
        case Here(_, subscriber, outlasts_us):
            to.holders[subscriber] = outlasts_us
        case Left(_, subscriber):
            to.holders.pop(subscriber, None)
        case _:
            assert_never(record)


def _set_floor(to: Kept, part: int, position: Position, seen: Seen) -> None:
    to.floors[part] = position
    if seen is None:
        to.seen.pop(part, None)
    else:
        to.seen[part] = seen


def records_of(application: str, kept: Kept) -> list[Record]:
    """The shortest records that lead there."""
    found: list[Record] = [
        Began(application, part, floor, kept.snapshots.get(part, -1), kept.seen.get(part))
        for part, floor in kept.floors.items()
    ]
    found += [Missed(application, part, NOBODY, lost) for part, lost in kept.lost.items()]
    found += [Here(application, name, outlasts_us) for name, outlasts_us in kept.holders.items()]
    grouped: dict[KeptFlow, list[str]] = {}
    for shard, flow in kept.flows.items():
        grouped.setdefault(flow, []).append(shard)
    for flow, shards in grouped.items():
        found.append(Noticed(application, flow.part, tuple(shards), flow.position, flow.lost, flow.seen))
    return found


def compact(saved: Sequence[bytes]) -> list[bytes]:
    """A journal's records as few as they can be."""
    return [encode(record) for name, kept in replay(saved).items() for record in records_of(name, kept)]
