"""What a publisher asks of whoever has the log, and what it is told."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from qanat.events.batch import Batch
from qanat.events.position import Position
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.tables import Snapshot
from qanat.protocols.publisher.witness import Witness

# Out: delivered to the application of the machine


class ReadTables(msgspec.Struct, frozen=True):
    """Not the log but rows as they are, for a part of an application. Each gets the snapshot's sequence
    number and, as index, the next number of the numbering that its epoch is; those who go on after an index
    have had all rows up to that, and nobody any that is above `beyond`. At last comes the snapshot's end. No
    row may be older than the log is there."""

    application: str
    part: int
    snapshot: Snapshot
    beyond: int


class ReadLog(msgspec.Struct, frozen=True):
    """Read on after this position, with the reader of this caravan; answer by `WasRead`, `WasLost` or
    `WasOther`, also if there is nothing."""

    caravan: int
    after: Position
    rows: int
    columns: tuple[str, ...] | None = None
    """Columns of rows that are wanted beside what an update's payload says: those that filters look at; None:
    all. What is told of updates as such (`#op`, `#S`, …) is always there."""
    tables: ReadTables | None = None
    """Rows are to be read, and not the log."""
    seen: tuple[Witness, ...] = ()
    """What the log must have, if it is the one that was read before: up to `after`, and where those are who
    got on ahead of the caravan."""


class CloseLog(msgspec.Struct, frozen=True):
    """This caravan is no more; nor need its reader be."""

    caravan: int


class Measure(msgspec.Struct, frozen=True):
    """From where to where does the log reach now? To be answered by `Measured`, or `Unreadable`."""


class Locate(msgspec.Struct, frozen=True):
    """Where is `earliest` or `latest` now? To be answered by `Located`. For a `snapshot`, the beginning of
    the last transaction: what it changed, the rows have."""

    application: str
    start: str


class Settled(msgspec.Struct, frozen=True):
    """Everything up to here is handled by every application, and that is on record: no later life, and no
    other copy, goes back to before it."""

    upto: Position


# In: requests


class WasRead(msgspec.Struct, frozen=True):
    """Everything after `after` and up to `upto`, with the log's positions; None where there is nothing that
    counts."""

    caravan: int
    after: Position
    upto: Position
    batch: Batch | None
    columns: tuple[str, ...] | None = None
    """Which columns of rows were wanted when it was made; None: all."""
    mark: bytes = b""
    """Of the last update in the batch, by which it is known again; empty: this log has nothing of the
    kind."""


class WasLost(msgspec.Struct, frozen=True):
    """The log no longer has what is after `after` and up to `upto`."""

    caravan: int
    after: Position
    upto: Position
    reason: str
    cut: bool = True
    """Else the log has it, and cannot give it: one update that is too large for any message. No other copy
    can."""


class WasOther(msgspec.Struct, frozen=True):
    """The log does not have what this witness had: it is of another history. Nothing was read."""

    caravan: int
    after: Position
    seen: Witness
    reason: str


class Located(msgspec.Struct, frozen=True):
    application: str
    start: str
    position: Position


class Measured(msgspec.Struct, frozen=True):
    """Everything after `oldest` can be read, and `newest` is the last."""

    oldest: Position
    newest: Position


class Unreadable(msgspec.Struct, frozen=True):
    """The log cannot be read now, for example because its datastore is away."""


class Settle(msgspec.Struct, frozen=True):
    """Up to where may the log be given up? To be answered by `Settled`, if that is known."""


class Configure(msgspec.Struct, frozen=True):
    """These applications, and no others, with these settings, from now on."""

    applications: Mapping[str, ApplicationConfig]
    publisher: PublisherConfig
    companies: Mapping[str, tuple[str, ...]] = {}
    """Who travels together whatever the policy says, by the company's name: `application`, or
    `application/shard`."""


class Move(msgspec.Struct, frozen=True):
    """All flows of an application (or of some shards) go on from this position, whatever they have had: an
    operator's decision."""

    application: str
    position: Position
    shards: tuple[str, ...] = ()


class Give(msgspec.Struct, frozen=True):
    """These shards of an application go to this subscriber, once whoever has them is done with what it has;
    an operator's decision."""

    application: str
    to: str
    shards: tuple[str, ...] = ()


class Quit(msgspec.Struct, frozen=True):
    """This publisher is about to stop: its subscribers are told, and another copy need not wait for its
    session to time out."""


PublisherItem: TypeAlias = ReadLog | CloseLog | Measure | Locate | Settled
"""What a publisher delivers."""
PublisherRequest: TypeAlias = (
    WasRead | WasLost | WasOther | Located | Measured | Unreadable | Settle | Configure | Move | Give | Quit
)
