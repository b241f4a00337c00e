"""Events of updates with every type of column, for fuzzing what makes updates of them again."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.events import COLUMNS, batch_of
from qanat.capture.rebuild import updates_of
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run, Updates
from qanat.events.batch import Batch

_SEPARATOR = b"\0"

_VALUES: list[tuple[pa.DataType, object]] = [
    (pa.uint64(), 2**64 - 1),
    (pa.int8(), -128),
    (pa.float32(), 0.5),
    (pa.float64(), float("nan")),
    (pa.decimal128(10, 2), Decimal("12.50")),
    (pa.bool_(), True),
    (pa.string(), 'a"\n'),
    (pa.binary(), b"\xff"),
    (pa.binary(2), b"ab"),
    (pa.date32(), date(2026, 1, 31)),
    (pa.time64("us"), time(9, 30)),
    (pa.timestamp("us"), datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None)),
    (pa.timestamp("us", "UTC"), datetime(2026, 1, 31, 12, tzinfo=UTC)),
    (pa.duration("us"), timedelta(hours=-5)),
]


def _updates() -> Updates:
    columns = tuple(Column(f"c{at}", kind, "", at == 0) for at, (kind, _) in enumerate(_VALUES))
    table = Table("shop", "public", "all", columns)
    row = {f"c{at}": value for at, (_, value) in enumerate(_VALUES)}
    image = pa.RecordBatch.from_pylist([row, row, {"c0": 1}], table.arrow)
    return Updates(
        [
            Run(
                table,
                np.array([Op.INSERT, Op.UPDATE, Op.DELETE], np.uint8),
                np.array([7, 7, 9], np.uint64),
                np.array([0, 1, 0], np.uint32),
                np.full(3, 1_700_000_000_000_000, np.int64),
                pa.array(["0-1-7", "0-1-7", "0-1-9"]).dictionary_encode(),
                image,
                image,
                unchanged={"c6": np.array([False, True, False])},
                key_only=np.array([False, False, True]),
            )
        ]
    )


def corpus() -> list[bytes]:
    """A table's description and an event's payload, with a zero byte between them."""
    batch = batch_of("changes", "shop", _updates())
    columns = str(batch.attribute_row(0)[COLUMNS]).encode()
    return [columns + _SEPARATOR + batch.payload(row) for row in range(batch.count)]


def decode_file(data: bytes) -> Updates:
    """The update of one event."""
    columns, _, payload = data.partition(_SEPARATOR)
    try:
        text = columns.decode()
    except UnicodeDecodeError as error:
        raise MalformedLog(f"a table's description is no text: {error}") from error
    updates = updates_of(Batch.build(1, [payload], attributes={COLUMNS: pa.array([text])}))
    for _ in updates.rows():
        pass
    return updates
