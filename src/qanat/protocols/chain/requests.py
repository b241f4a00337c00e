"""What the local application asks of a replica, and what it is told."""

from typing import TypeAlias

import msgspec

from qanat.events.batch import Batch
from qanat.protocols.chain.configuration import Configuration, Member
from qanat.protocols.history import Synced

# In


class Publish(msgspec.Struct, frozen=True):
    """Number these events, store them in the whole chain, and answer; only the head does."""

    ticket: int
    batch: Batch


class Store(msgspec.Struct, frozen=True):
    """Events that another region numbered, from the proxy level; they enter at the head as well."""

    batch: Batch


class Configured(msgspec.Struct, frozen=True):
    """The chain as the coordinator has it now."""

    member: Member
    """Who this replica is in it."""
    configuration: Configuration


class LeaseChanged(msgspec.Struct, frozen=True):
    """Look again whether you may serve."""


class WasReset(msgspec.Struct, frozen=True):
    """What `Reset` asked for is done, durably."""

    stream: int


class Wanted(msgspec.Struct, frozen=True):
    """So many replicas the chain shall have from now on; the head's word counts."""

    replicas: int


class Leave(msgspec.Struct, frozen=True):
    """This replica is about to stop: out of the chain with it now, without waiting for its session to time
    out. It serves no more, and only a restart brings it back."""


class Named(msgspec.Struct, frozen=True):
    """These are all replicas that the region's settings name now, this one among them."""

    replicas: tuple[str, ...]


class GiveUp(msgspec.Struct, frozen=True):
    """An operator says that these will never come back: the chain goes on without them, and perhaps without
    what only they have."""

    replicas: tuple[str, ...]


# Out


class Answered(msgspec.Struct, frozen=True):
    """Every replica has stored it. `first`..`last` are new (none if last < first), `dropped` rows were had
    already; all of it lies at or below `upto`."""

    epoch: int
    ticket: int
    stream: int
    first: int
    last: int
    dropped: int
    upto: int


class Refused(msgspec.Struct, frozen=True):
    """Not by this replica, or not now. `definite`: it certainly was not stored; else publish it again, with
    its position."""

    ticket: int
    code: str
    """`not_head`, `owned_elsewhere`, `busy`, or the name of the history's error."""
    reason: str
    head: str
    """Who is head as far as this replica knows; empty if it does not."""
    definite: bool


class Stable(msgspec.Struct, frozen=True):
    """Delivered at the tail alone: events up to here may be shown to peers and clients."""

    epoch: int
    stream: int
    upto: int


class Placed(msgspec.Struct, frozen=True):
    """This replica's place, after each change."""

    epoch: int
    head: str
    tail: str
    is_head: bool
    is_tail: bool


class Reset(msgspec.Struct, frozen=True):
    """What this replica holds of the stream is not what the chain has: wipe it, then say `WasReset`."""

    stream: int


ChainItem: TypeAlias = Answered | Refused | Stable | Placed | Reset
"""What a chain delivers."""
ChainOrder: TypeAlias = Wanted | Leave | Named | GiveUp
"""What concerns the chain as a whole, and this replica's standing in it."""
ChainRequest: TypeAlias = Publish | Store | Configured | LeaseChanged | WasReset | Synced
