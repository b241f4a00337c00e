"""What a replica persists beside its histories."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from qanat.protocols.chain.messages import Era


class Joined(msgspec.Struct, frozen=True, tag=True):
    """It has been in a chain: from now on it has something to keep."""

    epoch: int


class Reigned(msgspec.Struct, frozen=True, tag=True):
    """These are the eras now."""

    eras: tuple[Era, ...]


class Learned(msgspec.Struct, frozen=True, tag=True):
    """Positions of sources as of event `upto`, which was numbered in that era: true only of a history that has it."""

    stream: int
    upto: int
    era: int
    highest: dict[str, tuple[int, int]]


class Forgot(msgspec.Struct, frozen=True, tag=True):
    """The stream's history was discarded, and with it what was learned of it."""

    stream: int


Record: TypeAlias = Joined | Reigned | Learned | Forgot
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode


def compact(saved: Sequence[bytes]) -> list[bytes]:
    """The records of a journal that still say something: that it joined, the latest eras, what was learned last of each
    stream and not forgotten."""
    joined: bytes | None = None
    reigned: bytes | None = None
    learned: dict[int, bytes] = {}
    for each in saved:
        match decode(each):
            case Joined():
                joined = each
            case Reigned():
                reigned = each
            case Learned(stream):
                learned[stream] = each
            case Forgot(stream):
                learned.pop(stream, None)
    left = [each for each in (joined, reigned, *learned.values()) if each is not None]
    return left or list(saved[-1:])  # that there was a journal says something as well
