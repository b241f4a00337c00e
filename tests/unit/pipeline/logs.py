"""Updates made by hand, and what a plain loop would do with them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from qanat.capture import Column, Op, Run, Table, Updates
from qanat.capture.events import Events

COLUMNS = (Column("id", pa.int64(), key=True), Column("country", pa.string()), Column("total", pa.int64()))


class Row(NamedTuple):
    """An insert of one row into `shop.<table>`; or, without an id, a truncation of that table."""

    table: str
    id: int | None
    country: str | None = None
    total: int | None = None


def updates(rows: Sequence[Row], first: int = 1) -> Updates:
    """Each is a transaction of its own, from `first` on."""
    runs = []
    for at, row in enumerate(rows):
        table = Table("shop", "", row.table, COLUMNS)
        truncates = row.id is None
        image = {"id": row.id, "country": row.country, "total": row.total}
        runs.append(
            Run(
                table,
                np.array([Op.TRUNCATE if truncates else Op.INSERT], np.uint8),
                np.array([first + at], np.uint64),
                np.zeros(1, np.uint32),
                np.zeros(1, np.int64),
                pa.array([f"t{first + at}"]).dictionary_encode(),
                None if truncates else pa.RecordBatch.from_pylist([image], table.arrow),
            )
        )
    return Updates(runs)


def shard_of(row: Row, shards: int) -> int | None:
    return None if row.id is None else zlib.crc32(str(row.id).encode()) % shards


def sequences(events: Events) -> list[int]:
    """Positions, each checked against the payload that it belongs to."""
    found = events.sequences.tolist()
    payloads: list[bytes] = events.payloads.to_pylist()
    told: list[dict[str, Any]] = [json.loads(payload) for payload in payloads]
    assert [one["position"] for one in told] == [f"{sequence}:0" for sequence in found]
    return found
