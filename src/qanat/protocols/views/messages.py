"""What members of a region say to each other about who is there."""

import msgspec

from qanat.kernel import Address, Message


class Gossip(Message, frozen=True):
    """The sender's view, and by being sent, that the sender is alive.

    By datagram: a lost one costs a round, a doubled one changes nothing. Twenty members take well under the
    1,200 bytes that pass any network in one piece.
    """

    members: tuple[Address, ...]
    ages: tuple[int, ...]
    """Of each member, the rounds since it spoke for itself, as counted along this copy's way, plus one per hop."""
    answer: bool
    """Whether the sender wants the receiver's view in return; an answer itself wants none."""


class Leave(msgspec.Struct, frozen=True):
    """Request: stop taking part. Nobody is told: whoever no longer speaks is forgotten."""


class UseProxy(msgspec.Struct, frozen=True):
    """Request: the region's proxy is now at this address (the chain has a new tail)."""

    address: Address
