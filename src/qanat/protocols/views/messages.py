"""What members of a region say to each other about who is there."""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from qanat.events.ranges import PRINTED, Count
from qanat.kernel import Address, Message

MEMBERS_MAX = 4_096
"""Far more than any view has, and than fit a datagram."""
Peer: TypeAlias = Annotated[Address, Meta(min_length=1, max_length=512, pattern=PRINTED)]


class Gossip(Message, frozen=True):
    """The sender's view, and by being sent, that the sender is alive.

    By datagram: a lost one costs a round, a doubled one changes nothing. Twenty members take well under the
    1,200 bytes that pass any network in one piece.
    """

    members: Annotated[tuple[Peer, ...], Meta(max_length=MEMBERS_MAX)]
    ages: Annotated[tuple[Count, ...], Meta(max_length=MEMBERS_MAX)]
    """Of each member, the rounds since it spoke for itself, as counted along this copy's way, plus one per
    hop."""
    answer: bool
    """Whether the sender wants the receiver's view in return; an answer itself wants none."""

    def __post_init__(self) -> None:
        if len(self.members) != len(self.ages):
            raise ValueError(f"{len(self.members)} members have {len(self.ages)} ages")


class Leave(msgspec.Struct, frozen=True):
    """Request: stop taking part. Nobody is told: whoever no longer speaks is forgotten."""


class UseProxy(msgspec.Struct, frozen=True):
    """Request: the region's proxy is now at this address (the chain has a new tail)."""

    address: Address
