"""What a replica persists beside its histories."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from qanat.protocols.chain.configuration import Configuration
from qanat.protocols.chain.messages import Era


class Joined(msgspec.Struct, frozen=True, tag=True):
    """It has a place in a chain, and all that counts there: from now on it has something to keep."""

    epoch: int
    incarnation: int = 0


class Began(msgspec.Struct, frozen=True, tag=True):
    """In this life its disk was new. What an earlier life knew is lost."""

    incarnation: int


class Seen(msgspec.Struct, frozen=True, tag=True):
    """This configuration lay in the coordinator."""

    configuration: Configuration


class Had(msgspec.Struct, frozen=True, tag=True):
    """So much of each stream was on disk for certain. If less is there later, the log is an older copy, or
    lost its end."""

    marks: tuple[tuple[int, int], ...]


class Reigned(msgspec.Struct, frozen=True, tag=True):
    """These are the eras now."""

    eras: tuple[Era, ...]


class Learned(msgspec.Struct, frozen=True, tag=True):
    """Positions of sources as of event `upto`, which was numbered in that era: true only of a history that
    has it."""

    stream: int
    upto: int
    era: int
    highest: dict[str, tuple[int, int]]


class Forgot(msgspec.Struct, frozen=True, tag=True):
    """The stream's history was discarded, and with it what was learned of it. This disk has no longer all
    that counts."""

    stream: int


Record: TypeAlias = Joined | Began | Seen | Had | Reigned | Learned | Forgot
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode


def compact(saved: Sequence[bytes]) -> list[bytes]:
    """The records of a journal that still say something: since when it is kept, what was read last in the
    coordinator, that it is a member, the latest eras, what was learned last of each stream and not
    forgotten."""
    latest: dict[str, bytes] = {}
    forgot: bytes | None = None
    learned: dict[int, bytes] = {}
    for each in saved:
        match decode(each):
            case Joined():
                latest["joined"], forgot = each, None
            case Began():
                latest["began"] = each
            case Seen(configuration):
                latest["recovering" if configuration.recovering else "seen"] = each
            case Had():
                latest["had"] = each
            case Reigned():
                latest["reigned"] = each
            case Learned(stream):
                learned[stream] = each
            case Forgot(stream):
                learned.pop(stream, None)
                forgot = each if "joined" in latest else None
                if "had" in latest:
                    latest["had"] = _but(latest["had"], stream)
    left = [*latest.values(), *([forgot] if forgot is not None else []), *learned.values()]
    return left or list(saved[-1:])  # that there was a journal says something as well


def _but(had: bytes, stream: int) -> bytes:
    record = decode(had)
    marks = record.marks if isinstance(record, Had) else ()
    return encode(Had(tuple(mark for mark in marks if mark[0] != stream)))
