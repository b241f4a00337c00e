"""Which columns of a query the sink takes, in which text, and what it says of the others."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.types import StringType, StructField, StructType

from qanat.pipeline.sink.columns import check_schema, publishable
from qanat.pipeline.source.options import BadOption

pytestmark = pytest.mark.paper("D1")

DAY = datetime.fromisoformat("2026-01-31T12:30:00")


def schema(name: str, kind: spark_types.DataType) -> StructType:
    return StructType([StructField("payload", StringType()), StructField(name, kind)])


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "text"),
    [
        (spark_types.DecimalType(8, 2), pa.decimal128(8, 2), Decimal("12.5"), "12.50"),
        (spark_types.DecimalType(38, 18), pa.decimal128(38, 18), Decimal("0"), "0." + "0" * 18),
        (spark_types.DecimalType(38, 9), pa.decimal128(38, 9), Decimal("1E-7"), "0.000000100"),
        (spark_types.DateType(), pa.date32(), date(2026, 1, 31), "2026-01-31"),
        (
            spark_types.TimestampType(),
            pa.timestamp("us", "UTC"),
            DAY.replace(tzinfo=UTC),
            "2026-01-31T12:30:00.000000Z",
        ),
        (spark_types.TimestampNTZType(), pa.timestamp("us"), DAY, "2026-01-31T12:30:00.000000"),
        (
            spark_types.TimestampType(),
            pa.timestamp("us", "America/New_York"),
            DAY.replace(tzinfo=UTC),
            "2026-01-31T12:30:00.000000Z",
        ),
        (spark_types.TimeType(), pa.time64("ns"), time(9, 30), "09:30:00.000000"),
    ],
)
def test_decimals_and_moments_become_text(
    kind: spark_types.DataType, arrow: pa.DataType, value: Any, text: str
) -> None:
    check_schema(schema("x", kind), "s")
    rows = pa.RecordBatch.from_pydict({"payload": ["a", "b"], "x": pa.array([value, None], arrow)})
    ((_, events),) = publishable(rows, "s")
    (column,) = events.attributes["x"]
    assert column.to_pylist() == [text, None]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "tags",
            spark_types.ArrayType(StringType()),
            r"column 'tags' of type array<string> .* write to_json\(tags\) tags, or drop it",
        ),
        ("a b", spark_types.MapType(StringType(), StringType()), r"write to_json\(`a b`\) `a b`, or drop it"),
        ("v", spark_types.VariantType(), r"column 'v' of type variant .* to_json\(v\) v"),
        (
            "t",
            spark_types.DayTimeIntervalType(),
            r"column 't' of type interval .* cast\(t as string\) t, or drop it",
        ),
        (
            "t",
            spark_types.CalendarIntervalType(),
            r"column 't' of type .*interval .* cast\(t as string\) t, or drop it",
        ),
        ("nothing", spark_types.NullType(), r"column 'nothing' of type void .* or drop it"),
        (
            "key",
            spark_types.LongType(),
            r"column 'key' of type bigint .* key is binary or text, so write cast\(key as string\) key",
        ),
        ("kind", spark_types.LongType(), r"column 'kind' .* kind is text"),
        ("attributes", StringType(), r"attributes is map<string,string>"),
    ],
)
def test_what_cannot_be_published_is_named_with_what_to_write_instead(
    name: str, kind: spark_types.DataType, words: str
) -> None:
    with pytest.raises(BadOption, match=words):
        check_schema(schema(name, kind), "s")
