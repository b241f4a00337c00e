"""The shard of an update: a column, a hash of the key, or the producer's own value."""

from __future__ import annotations

import zlib
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.capture import Column, Op, Run, Table
from qanat.capture.sharding import SHARD, Sharding, keys, shards
from qanat.events.errors import LocalError


def run(table: Table, *rows: tuple[Op, dict[str, Any] | None, dict[str, Any] | None]) -> Run:
    def image(values: list[dict[str, Any] | None]) -> pa.RecordBatch | None:
        return pa.RecordBatch.from_pylist([v or {} for v in values], table.arrow) if any(values) else None

    count = len(rows)
    return Run(
        table,
        np.array([op for op, _, _ in rows], np.uint8),
        np.arange(1, count + 1, dtype=np.uint64),
        np.zeros(count, np.uint32),
        np.zeros(count, np.int64),
        pa.array(["t"] * count).dictionary_encode(),
        image([after for _, _, after in rows]),
        image([before for _, before, _ in rows]),
    )


ORDERS = Table(
    "shop",
    "",
    "orders",
    (Column("id", pa.uint64(), key=True), Column("country", pa.string()), Column(SHARD, pa.int32())),
)
SAMPLE = run(
    ORDERS,
    (Op.INSERT, None, {"id": 2**64 - 1, "country": "FR", SHARD: 7}),
    (Op.UPDATE, {"id": 1, "country": "FR", SHARD: 3}, {"id": 1, "country": "DE", SHARD: 4}),
    (Op.DELETE, {"id": 1, "country": "DE", SHARD: 4}, None),
    (Op.TRUNCATE, None, None),
)


def values(text: str, sample: Run = SAMPLE) -> list[Any] | None:
    found = shards(sample, Sharding.parse(text))
    return None if found is None else found.to_pylist()


@pytest.mark.paper("W2")
def test_by_a_column_by_the_key_or_by_the_producer() -> None:
    assert values("country") == ["FR", "DE", "DE", None]
    assert values("") == values(SHARD) == [7, 4, 4, None]
    by_key = [zlib.crc32(key) % 64 for key in (b"18446744073709551615", b"1", b"1")]
    assert values("hash:64") == [*by_key, None]
    assert values("price") is None


def test_after_an_update_the_row_is_where_it_was_moved_to() -> None:
    moved = run(ORDERS, (Op.UPDATE, {"id": 1}, {"id": 2}))
    assert keys(moved) == [b"2"]


def test_a_value_that_was_left_out_is_taken_from_before() -> None:
    kept = run(ORDERS, (Op.UPDATE, {"id": 1, "country": "FR"}, {"id": 1}))
    kept = replace(kept, unchanged={"country": np.array([True])})
    assert values("country", kept) == ["FR"]


def test_keys_of_several_columns_and_types() -> None:
    table = Table(
        "s",
        "",
        "t",
        (
            Column("day", pa.date32(), key=True),
            Column("raw", pa.binary(), key=True),
            Column("sum", pa.decimal128(10, 2), key=True),
        ),
    )
    row = {"day": date(2026, 1, 31), "raw": b"\xff\x00", "sum": Decimal("1.50")}
    assert keys(run(table, (Op.INSERT, None, row))) == [b'["2026-01-31","ff00","1.50"]']


def test_a_table_without_a_key_is_one_shard() -> None:
    table = Table("s", "", "t", (Column("a", pa.int64()),))
    sample = run(table, (Op.INSERT, None, {"a": 1}), (Op.INSERT, None, {"a": 2}))
    assert keys(sample) == [b"", b""]
    assert values("hash:4", sample) == [0, 0]


def test_sharding_is_read_and_printed() -> None:
    for text in ("hash:64", "country", SHARD):
        assert str(Sharding.parse(text)) == text
    for text in ("hash:", "hash:0", "hash:x"):
        with pytest.raises(LocalError, match="number of shards"):
            Sharding.parse(text)
