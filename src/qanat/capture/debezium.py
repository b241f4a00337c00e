"""Updates in Debezium's envelope, for programs that read it already: `before`, `after`, `source`, `op`,
`ts_ms`, `transaction`.

Values are those of a connector with `decimal.handling.mode=string` and its other defaults; docs/updates.md
has the table. Whole numbers stay exact, unsigned ones of 64 bits too, which a connector would give as
negative.
"""

import binascii
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat import __version__
from qanat.capture.envelope import Texts, joined, objects, positions
from qanat.capture.json_text import encode, json_texts
from qanat.capture.table import Column
from qanat.capture.updates import Op, Run

OPS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d", Op.TRUNCATE: "t", Op.READ: "r", Op.PUT: "u"}
"""Operations that Debezium knows; `merge` and `delete_range` of a key-value store keep their own names."""
UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a value that the log left out because it did not change."""

_DIGITS = re.compile(r"\((\d+)\)")
_MILLISECONDS = 3
"""Digits of a fraction up to which a connector gives milliseconds."""


def values(mysql: bool) -> Texts:
    """How a connector writes a column's values; `mysql`: of MySQL or MariaDB, whose times have no fraction
    unless declared."""
    return partial(_values, mysql)


def _values(mysql: bool, column: Column, values: pa.Array) -> pa.Array:
    kind, types = values.type, pa.types
    found = _DIGITS.search(column.declared)
    digits = int(found[1]) if found else 0 if mysql else 6
    if mysql and column.declared.startswith("bit") and types.is_integer(kind):
        return _bits(values, digits or 1)
    if types.is_date(kind):
        return _numbers(values.cast(pa.date32()).view(pa.int32()))
    if types.is_time(kind):
        unit = "ms" if digits <= _MILLISECONDS and not mysql else "us"
        return _numbers(_in_unit(values.cast(pa.time64("us")).view(pa.int64()), unit))
    if types.is_timestamp(kind) and kind.tz is None:
        unit = "ms" if digits <= _MILLISECONDS else "us"
        return _numbers(_in_unit(values.cast(pa.timestamp("us")).view(pa.int64()), unit))
    if types.is_timestamp(kind):
        short = pc.replace_substring_regex(json_texts(values), r'(\.\d*?)0+Z"$', r'\1Z"')
        return pc.replace_substring(short, '.Z"', 'Z"')
    if types.is_duration(kind):
        return _numbers(values.cast(pa.duration("us")).view(pa.int64()))
    return json_texts(values)


def _in_unit(microseconds: pa.Array, unit: str) -> pa.Array:
    if unit == "us":
        return microseconds
    whole = np.floor_divide(np.asarray(pc.fill_null(microseconds, 0)), 1000)
    return pa.array(whole, mask=np.asarray(microseconds.is_null()))


def _numbers(values: pa.Array) -> pa.Array:
    return pc.fill_null(values.cast(pa.string()), "null")


def _bits(values: pa.Array, width: int) -> pa.Array:
    """One bit is a boolean; more are bytes, the lowest first."""
    if width == 1:
        return json_texts(pc.not_equal(values, 0))
    size = (width + 7) // 8
    raw = np.asarray(pc.fill_null(values, 0)).astype("<u8").view(np.uint8).reshape(-1, 8)[:, :size]
    encoded = [binascii.b2a_base64(row, newline=False) for row in map(bytes, np.ascontiguousarray(raw))]
    texts = pc.binary_join_element_wise('"', pa.array(encoded, pa.binary()).cast(pa.string()), '"', "")
    return pc.if_else(values.is_valid(), texts, "null")


def envelopes(run: Run, connector: str, source: str, now_ms: int) -> pa.Array:
    """Each update as one line of JSON. `connector` is `mysql`, `mariadb`, `postgresql` or the scheme of
    another log."""
    texts = values(connector in ("mysql", "mariadb"))
    codes = pa.array([OPS.get(op, op.name.lower()) for op in Op])
    milliseconds = pa.array(run.times_us // 1000).cast(pa.string())
    return joined(
        '{"before":',
        objects(run, run.before, run.befores, texts, after=False, unchanged=UNAVAILABLE),
        ',"after":',
        objects(run, run.after, run.afters, texts, after=True, unchanged=UNAVAILABLE),
        ',"source":',
        _sources(run, connector, source, milliseconds),
        ',"op":"',
        codes.take(pa.array(run.ops)),
        f'","ts_ms":{now_ms},"transaction":{{"id":',
        json_texts(run.transactions),
        ',"total_order":',
        pa.array(run.indexes.astype(np.int64) + 1).cast(pa.string()),
        "}}",
    )


def _sources(run: Run, connector: str, source: str, milliseconds: pa.Array) -> pa.Array:
    table = run.table
    head = encode({"version": __version__, "connector": connector, "name": source}).decode()[:-1]
    names = encode(
        {"db": table.database, **({"schema": table.schema} if table.schema else {}), "table": table.name}
    )
    snapshot = pc.if_else(pa.array(run.ops == Op.READ), "true", "false")
    parts: list[pa.Array | str] = [
        head,
        ',"ts_ms":',
        milliseconds,
        ',"ts_us":',
        pa.array(run.times_us).cast(pa.string()),
    ]
    parts += [',"snapshot":"', snapshot, f'",{names.decode()[1:-1]},"position":"', positions(run), '"']
    sequences = pa.array(run.sequences).cast(pa.string())
    if connector in ("mysql", "mariadb"):
        parts += [
            ',"gtid":',
            json_texts(run.transactions),
            ',"row":',
            pa.array(run.indexes).cast(pa.string()),
        ]
    elif connector == "postgresql":
        parts += [',"txId":', json_texts(run.transactions), ',"lsn":', sequences]
    return joined(*parts, "}")
