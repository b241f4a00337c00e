"""What becomes of updates once they are read: events of a stream, updates again, lines in Debezium's
envelope; and one row at a time."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

from qanat.bench.figures import gathered
from qanat.capture.debezium import envelopes
from qanat.capture.events import batch_of
from qanat.capture.rebuild import updates_of
from qanat.capture.sharding import Sharding
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run, Update, Updates

DESCRIPTION = (
    "updates into events, back again, and into Debezium's envelope in rows/s, beside one row at a time"
)
ROWS = 20_000
_TABLE = Table(
    "shop",
    "",
    "rows",
    (
        Column("k", pa.int32(), "int", True),
        Column("a", pa.int64(), "bigint"),
        Column("b", pa.string(), "varchar(40)"),
        Column("p", pa.decimal128(10, 2), "decimal(10,2)"),
        Column("t", pa.timestamp("us"), "datetime(3)"),
        Column("c", pa.string(), "varchar(40)"),
    ),
)


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds; the ways take turns."""
    updates = sample(ROWS)
    (only,) = updates.runs
    batch = batch_of("rows", "shop", updates)
    ways: dict[str, Callable[[], object]] = {
        "events": lambda: batch_of("rows", "shop", updates, Sharding.parse("hash:64")),
        "rebuilt": lambda: updates_of(batch),
        "debezium": lambda: envelopes(only, "mariadb", "shop", 0),
        "one_by_one": lambda: [json.dumps(_line(update)) for update in updates.rows()],
    }
    figures: dict[str, list[float]] = {}
    for number in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            figures.setdefault(f"{name}_rows_per_s", []).append(ROWS / (time.perf_counter() - began))
        ratio = figures["events_rows_per_s"][-1] / figures["one_by_one_rows_per_s"][-1]
        figures.setdefault("events_ratio", []).append(ratio)
        say(f"round {number + 1} of {rounds}: " + ", ".join(f"{k} {v[-1]:,.0f}" for k, v in figures.items()))
    return gathered(figures)


def sample(rows: int) -> Updates:
    """Insertions of about 100 bytes."""
    moment = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    keys = np.arange(rows)
    columns = [
        pa.array(keys, pa.int32()),
        pa.array(keys * 7, pa.int64()),
        pa.array(["v" * (key % 40) for key in range(rows)]),
        pa.array([Decimal(key).scaleb(-2) for key in range(rows)], pa.decimal128(10, 2)),
        pa.array([moment] * rows, pa.timestamp("us")),
        pa.array(["w" * 30] * rows),
    ]
    return Updates(
        [
            Run(
                _TABLE,
                np.full(rows, Op.INSERT, np.uint8),
                np.arange(1, rows + 1, dtype=np.uint64),
                np.zeros(rows, np.uint32),
                np.full(rows, 1_767_225_600_000_000, np.int64),
                pa.array([f"0-1-{key}" for key in range(rows)]).dictionary_encode(),
                pa.RecordBatch.from_arrays(columns, schema=_TABLE.arrow),
            )
        ]
    )


def _line(update: Update) -> dict[str, object]:
    """What a plain loop would write for a row."""
    after = {
        name: str(value) if isinstance(value, Decimal | datetime) else value
        for name, value in (update.after or {}).items()
    }
    return {
        "position": str(update.position),
        "op": update.op.name,
        "table": update.table.name,
        "after": after,
    }
