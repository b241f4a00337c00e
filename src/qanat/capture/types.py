"""Arrow types as text and back, for those that a column may have: single values, nothing nested."""

import re

import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.events.errors import LocalError

_PLAIN: dict[str, pa.DataType] = {
    str(kind): kind for kind in ( pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(),
    pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.date64(), *map(pa.time32, ("s", "ms")),
    *map(pa.time64, ("us", "ns")), *map(pa.duration, ("s", "ms", "us", "ns")), *map(pa.timestamp, ("s", "ms",
    "us", "ns")), )
}  # fmt: skip
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([A-Za-z0-9_+\-:/]{1,64})\]")
_DECIMAL = re.compile(r"decimal(128|256)\((\d{1,2}), (-?\d{1,3})\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d{1,6})\]")


def type_text(kind: pa.DataType) -> str:
    """`decimal128(10, 2)`; refuses nested types, which a reader gives as JSON text."""
    text = str(kind)
    if text in _PLAIN or any(pattern.fullmatch(text) for pattern in (_ZONED, _DECIMAL, _FIXED)):
        return text
    raise LocalError(
        f"a column of type {text} has no form in an event; its reader should hold it as JSON text"
    )


def type_of_text(text: str) -> pa.DataType:
    """What `type_text` printed; `MalformedLog` for anything else."""
    if text in _PLAIN:
        return _PLAIN[text]
    try:
        if found := _ZONED.fullmatch(text):
            zoned = pa.timestamp(found[1], found[2])
            pa.scalar(
                0, zoned
            ).as_py()  # Arrow takes any name for a zone, and fails when a value is looked at
            return zoned
        if found := _DECIMAL.fullmatch(text):
            return (pa.decimal128 if found[1] == "128" else pa.decimal256)(int(found[2]), int(found[3]))
        if found := _FIXED.fullmatch(text):
            return pa.binary(int(found[1]))
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise MalformedLog(f"{text[:80]!r} is no type of a column: {error}") from error
    raise MalformedLog(f"{text[:80]!r} is no type of a column")
