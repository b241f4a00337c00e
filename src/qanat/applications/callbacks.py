"""What an application implements (Wormhole, Table 1), and what it is given."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from qanat.capture.rebuild import updates_of
from qanat.capture.sharding import SHARD, keys
from qanat.capture.table import Table
from qanat.capture.updates import Op, Updates
from qanat.events.batch import Batch
from qanat.events.position import Position


class Update(NamedTuple):
    """One change of one row."""

    shard: str
    position: Position
    op: Op
    table: Table
    key: str
    """The primary key as text; several columns as a JSON array."""
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    transaction: str
    time_us: int
    """When it was committed, in microseconds since the epoch."""


class DataLoss(NamedTuple):
    """What these shards had after `after` and up to `upto` was not sent, and never will be."""

    shards: tuple[str, ...]
    after: Position
    upto: Position
    reason: str


class Datamarker(NamedTuple):
    """Every update of each shard up to its position was handed over before."""

    positions: dict[str, Position]
    last: bool
    """These shards go to another instance now."""


class Delivery:
    """Updates as they came: in order, for any number of shards. Columns are there without a loop; rows cost
    one."""

    __slots__ = ("__dict__", "batch", "only", "publisher")

    def __init__(self, publisher: str, batch: Batch, only: Sequence[str] = ()) -> None:
        self.publisher, self.batch = publisher, batch
        self.only = tuple(only)
        """The shards that it is for, if it concerns every shard and not all of this instance's are there yet;
        else empty."""

    def __len__(self) -> int:
        return self.batch.count

    def payloads(self) -> pa.Array:
        """Each update as one line of JSON, as docs/updates.md writes it."""
        return self.batch.payloads()

    def attributes(self) -> dict[str, list[pa.Array]]:
        """What is told of each update: `#S`, `#op`, `#table`, …, and those columns of rows that filters look
        at; all columns, where the publisher's file has `columns = true` for the application. `updates` has
        them in any case."""
        return self.batch.attributes()

    @cached_property
    def updates(self) -> Updates:
        """Columns with the types of their tables."""
        return updates_of(self.batch)

    def rows(self) -> Iterator[Update]:
        """One by one; a loop, so not for bulk."""
        shards = self._shards()
        at = 0
        for run in self.updates.runs:
            for key, update in zip(keys(run), run.rows(), strict=True):
                yield Update(
                    shards[at],
                    update.position,
                    update.op,
                    update.table,
                    key.decode(),
                    update.before,
                    update.after,
                    update.transaction,
                    update.time_us,
                )
                at += 1

    def _shards(self) -> list[str]:
        shards = [""] * len(self)
        for column in self.batch.attributes().get(SHARD, []):
            plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            for row, value in enumerate(plain.to_pylist()):
                if value is not None:
                    shards[row] = str(value)
        return shards


class Callbacks:
    """Override what you need. All are called in one thread, one after the other; a return means that it is
    done.

    `on_shard_notices` and `on_updates` are told many at once, and as they are they call `on_shard_notice` and
    `on_update` for each. A token and a loss are of many shards as they are.
    """

    def on_shard_notices(self, shards: Sequence[str]) -> None:
        """Several at once: after a restart an instance may get thousands."""
        for shard in shards:
            self.on_shard_notice(shard)

    def on_shard_notice(self, shard: str) -> None:
        """Updates of this shard come here from now on, from its datamarker on: some may have come before."""

    def on_updates(self, delivery: Delivery) -> None:
        """Updates, many at once; for those who want speed. As it is, it calls `on_update` for each."""
        for update in delivery.rows():
            self.on_update(update)

    def on_update(self, update: Update) -> None:
        """One update."""

    def on_token(self, marker: Datamarker) -> bool | None:
        """Make what was handled last, if it does not yet; then everything up to the marker is never sent
        again.

        Return False if that cannot be promised; the next one will be asked in time.
        """

    def on_data_loss(self, loss: DataLoss) -> None:
        """Something is missing. As it is, this ends the process: whoever can do without says so here."""
        raise RuntimeError(
            f"updates of shards {', '.join(map(repr, loss.shards[:5]))} after {loss.after} and up to"
            f" {loss.upto} were lost: {loss.reason}; override on_data_loss to go on without them"
        )
