"""`#S`, the shard of an update: all updates of one shard are delivered in order, to one subscriber (Wormhole,
section 3).

It is a column's value, a hash of the primary key, or what the producer wrote itself under the name `#S`. What
concerns no row alone (a truncation, a deletion of a range) has no shard: it concerns them all.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.decimal_texts import decimal_texts
from qanat.capture.digits import hexadecimal
from qanat.capture.updates import Op, Run
from qanat.events.errors import LocalError

SHARD = "#S"
_HASH = "hash:"
_TRUNCATE, _DELETE_RANGE = int(Op.TRUNCATE), int(Op.DELETE_RANGE)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Sharding:
    """`column`: whose value is the shard. `shards`: that many, by the CRC-32 of the key, where there is no
    column."""

    column: str = SHARD
    shards: int = 0

    @classmethod
    def parse(cls, text: str) -> "Sharding":
        """`hash:64`, or a column's name; nothing is the producer's own value."""
        if not text.startswith(_HASH):
            return cls(text or SHARD)
        number = text.removeprefix(_HASH)
        if not (number.isascii() and number.isdigit()) or not 0 < int(number) < 1 << 32:
            raise LocalError(f"{text!r}: write the number of shards after hash:, as hash:64")
        return cls("", int(number))

    def __str__(self) -> str:
        return f"{_HASH}{self.shards}" if self.shards else self.column


def shards(run: Run, sharding: Sharding, keyed: pa.Array | None = None) -> pa.Array | None:
    """The shard of each row, as whole numbers or text; None if no row has one. An update that moves a row
    to another shard belongs to the shard that the row has after it. `keyed` is `key_column`, where it is
    known."""
    if sharding.shards:
        found = (key_column(run) if keyed is None else keyed).to_pylist()
        numbers = np.fromiter(map(zlib.crc32, found), np.int64, len(run)) % sharding.shards
        return pa.array(numbers, mask=~has_row(run))
    if sharding.column not in run.table.arrow.names:
        return None
    values = image(run, sharding.column)
    if values is None or values.null_count == len(values):
        return None
    if pa.types.is_integer(values.type):
        return values
    return texts(values)


def has_row(run: Run) -> npt.NDArray[np.bool_]:
    """Updates that concern one row."""
    found: npt.NDArray[np.bool_] = (run.ops != _TRUNCATE) & (run.ops != _DELETE_RANGE)
    return found


def keys(run: Run) -> list[bytes]:
    """The primary key of each row as text: a value alone as it is (`42`), several as a JSON array
    (`["42","EU"]`). Empty for a table without a key, and where no single row is concerned.

    After an update that changes the key it is the new one.
    """
    found: list[bytes] = key_column(run).to_pylist()
    return found


def key_column(run: Run) -> pa.Array:
    """The same as a column."""
    names = run.table.key
    columns = [column for column in (image(run, name) for name in names) if column is not None]
    if not columns:
        return pa.array([b""] * len(run), pa.binary())
    parts = [texts(column).fill_null("") for column in columns]
    if len(names) == 1:
        made = parts[0].cast(pa.binary())
    else:
        made = pa.array(
            list(map(_encode, zip(*(part.to_pylist() for part in parts), strict=True))), pa.binary()
        )
    there = has_row(run)
    return made if there.all() else pc.if_else(pa.array(there), made, pa.scalar(b"", pa.binary()))


def image(run: Run, name: str) -> pa.Array | None:
    """A column as it is after the update, or before where there is no after; null for rows without either."""
    after = None if run.after is None else run.after.column(name)
    before = None if run.before is None else run.before.column(name)
    if after is None or before is None:
        return before if after is None else after
    chosen = run.afters
    kept = None if run.unchanged is None else run.unchanged.get(name)
    if kept is not None:
        chosen = chosen & ~(kept & run.befores)
    return after if chosen.all() else pc.if_else(pa.array(chosen), after, before)


def texts(values: pa.Array) -> pa.Array:
    """Any column of single values as text; binary in hexadecimal, decimals without exponents, times as ISO
    8601 writes them."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return texts(values.dictionary_decode())
    if pa.types.is_string(kind):
        return values
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return hexadecimal(values).cast(pa.string())
    if pa.types.is_decimal(kind):
        return decimal_texts(values)
    try:
        return values.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        plain_values: list[Any] = values.to_pylist()
        return pa.array([None if value is None else str(value) for value in plain_values], pa.string())
