"""Debezium's envelope: what its readers expect, value by value."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat import __version__
from qanat.capture import Column, Op, Run, Table
from qanat.capture.debezium import UNAVAILABLE, envelopes

COLUMNS = (
    Column("id", pa.uint64(), "bigint unsigned", True),
    Column("price", pa.decimal128(10, 2), "decimal(10,2)"),
    Column("day", pa.date32(), "date"),
    Column("at", pa.timestamp("us"), "datetime"),
    Column("exact", pa.timestamp("us"), "datetime(6)"),
    Column("zoned", pa.timestamp("us", "UTC"), "timestamp(6)"),
    Column("span", pa.duration("us"), "time"),
    Column("flag", pa.uint64(), "bit(1)"),
    Column("mask", pa.uint64(), "bit(10)"),
    Column("raw", pa.binary(), "blob"),
    Column("doc", pa.string(), "json"),
)
SHOP = Table("shop", "", "prices", COLUMNS)
ROW = {
    "id": 2**64 - 1,
    "price": Decimal("12.50"),
    "day": date(1970, 1, 3),
    "at": datetime.fromisoformat("1969-12-31T23:59:59"),
    "exact": datetime.fromisoformat("1970-01-01T00:00:00.000007"),
    "zoned": datetime(2026, 1, 31, 12, 0, 0, 120_000, tzinfo=UTC),
    "span": timedelta(hours=-800),
    "flag": 1,
    "mask": 0x201,
    "raw": b"\xff\x00",
    "doc": '{"a": 1}',
}
EXPECTED = {
    "id": 2**64 - 1,
    "price": "12.50",
    "day": 2,
    "at": -1000,
    "exact": 7,
    "zoned": "2026-01-31T12:00:00.12Z",
    "span": -800 * 3600 * 1_000_000,
    "flag": True,
    "mask": base64.b64encode(b"\x01\x02").decode(),
    "raw": "/wA=",
    "doc": '{"a": 1}',
}


def run(table: Table, ops: list[Op], after: list[Any], before: list[Any], **more: Any) -> Run:
    count = len(ops)

    def image(rows: list[Any]) -> pa.RecordBatch | None:
        return pa.RecordBatch.from_pylist([row or {} for row in rows], table.arrow) if any(rows) else None

    return Run(
        table,
        np.array(ops, np.uint8),
        np.full(count, 7, np.uint64),
        np.arange(count, dtype=np.uint32),
        np.full(count, 1_700_000_000_123_456, np.int64),
        pa.array(["0-1-7"] * count).dictionary_encode(),
        image(after),
        image(before),
        **more,
    )


def printed(updates: Run, connector: str = "mariadb") -> list[Any]:
    return [json.loads(line) for line in envelopes(updates, connector, "mariadb:0", 99).to_pylist()]


@pytest.mark.paper("W2")
def test_operations_images_and_values() -> None:
    ops = [Op.INSERT, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE, Op.PUT]
    nothing = dict.fromkeys(EXPECTED)
    inserted, updated, deleted, read, truncated, put = printed(
        run(SHOP, ops, [ROW, ROW, None, ROW, None, ROW], [None, {"id": 1}, ROW, None, None, None])
    )
    assert [line["op"] for line in (inserted, updated, deleted, read, truncated, put)] == list("cudrtu")
    assert inserted["after"] == EXPECTED
    assert inserted["before"] is None
    assert updated["before"] == {**nothing, "id": 1}
    assert deleted["before"] == EXPECTED
    assert deleted["after"] is truncated["after"] is truncated["before"] is None
    assert read["source"]["snapshot"] == "true"
    assert updated["source"] == {
        "version": __version__,
        "connector": "mariadb",
        "name": "mariadb:0",
        "ts_ms": 1_700_000_000_123,
        "ts_us": 1_700_000_000_123_456,
        "snapshot": "false",
        "db": "shop",
        "table": "prices",
        "position": "7:1",
        "gtid": "0-1-7",
        "row": 1,
    }
    assert (updated["ts_ms"], updated["transaction"]) == (99, {"id": "0-1-7", "total_order": 2})


def test_postgres_has_its_own_precisions_and_values_that_are_not_there() -> None:
    columns = (
        Column("id", pa.int64(), "int8", True),
        Column("open", pa.time64("us"), "time"),
        Column("shut", pa.time64("us"), "time(3)"),
        Column("at", pa.timestamp("us"), "timestamp"),
        Column("coarse", pa.timestamp("us"), "timestamp(3)"),
        Column("note", pa.string(), "text"),
    )
    table = Table("shop", "public", "prices", columns)
    moment = datetime.fromisoformat("1970-01-01T00:00:01")
    row = {
        "id": 1,
        "open": time(0, 0, 1),
        "shut": time(0, 0, 1),
        "at": moment,
        "coarse": moment,
        "note": None,
    }
    updates = run(
        table,
        [Op.UPDATE],
        [row],
        [{"id": 1}],
        unchanged={"note": np.array([True])},
        key_only=np.array([True]),
    )
    (line,) = printed(updates, "postgresql")
    assert line["after"] == {
        "id": 1,
        "open": 10**6,
        "shut": 1000,
        "at": 10**6,
        "coarse": 1000,
        "note": UNAVAILABLE,
    }
    assert line["before"] == {**dict.fromkeys(line["after"]), "id": 1}
    assert (line["source"]["schema"], line["source"]["lsn"]) == ("public", 7)


def test_what_debezium_does_not_know_keeps_its_name() -> None:
    table = Table("", "", "default", (Column("key", pa.binary(), key=True), Column("value", pa.binary())))
    ops = [Op.MERGE, Op.DELETE_RANGE]
    rows = [{"key": b"a", "value": b"b"}, {"key": b"z"}]
    assert [line["op"] for line in printed(run(table, ops, rows, [None, {"key": b"a"}]), "rocksdb")] == [
        "merge",
        "delete_range",
    ]
