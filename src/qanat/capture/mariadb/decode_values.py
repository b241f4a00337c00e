"""Values of one column, from where they lie in the bytes of many rows, as one Arrow array. No loop over rows
for common types."""

import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb import types
from qanat.capture.mariadb.charsets import LATIN1_TABLE, UTF8, WIDE, text_of
from qanat.capture.mariadb.types import DIGIT_BYTES, ColumnType

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Nulls = npt.NDArray[np.bool_]
DAY_US = 86_400_000_000


class ImpossibleDate(MalformedLog):
    """A date such as 0000-00-00, which only MariaDB has."""


def fixed(
    data: Bytes, at: Offsets, nulls: Nulls | None, column: ColumnType, zero_dates_null: bool
) -> pa.Array:
    """A column whose values all have `column.width` bytes, at these offsets; what lies at the offset of a
    null is not looked at."""
    raw = data[at[:, None] + np.arange(column.width)]
    if nulls is not None:
        raw[nulls] = 0
    code = column.code
    if code in (types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG):
        return _masked(_integers(raw, column.unsigned), nulls, column.arrow)
    if code == types.FLOAT:
        return _masked(raw.view("<f4")[:, 0], nulls, column.arrow)
    if code == types.DOUBLE:
        return _masked(raw.view("<f8")[:, 0], nulls, column.arrow)
    if code == types.NEWDECIMAL:
        return _decimals(raw, column, nulls)
    if code == types.YEAR:
        years = raw[:, 0].astype(np.uint16)
        return _masked(np.where(years == 0, 0, years + 1900).astype(np.uint16), nulls, column.arrow)
    if code == types.BIT:
        return _masked(_big_endian(raw), nulls, column.arrow)
    if code == types.ENUM:
        return _enumerated(_little_endian(raw).astype(np.int64), column, nulls)
    if code == types.SET:
        return _sets(_little_endian(raw), column, nulls)
    if code in (types.TIME, types.TIME2):
        return _masked(_TEMPORAL[code](raw, column)[0], nulls, column.arrow)
    values, impossible = _TEMPORAL[code](raw, column)
    if nulls is not None:
        impossible &= ~nulls
    if impossible.any():
        if not zero_dates_null:
            raise ImpossibleDate(
                f"a {column.name} has a zero year, month or day, which is no date outside MariaDB; "
                "read with the option zero_dates=null to have such values as NULL"
            )
        nulls = impossible if nulls is None else nulls | impossible
        values = np.where(nulls, 0, values)
    return _masked(values, nulls, column.arrow)


def variable(
    data: pa.Buffer, at: Offsets, size: Offsets, nulls: Nulls | None, column: ColumnType
) -> pa.Array:
    """A column whose values have their own lengths; offsets rise, and those of nulls have length 0."""
    count = len(at)
    # Values and the gaps between them as one array over the bytes as they are; taking each second element
    # copies the values alone.
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = at
    edges[1::2] = at + size
    both = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(edges), data])
    chosen = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=nulls)
    values = both.take(chosen)
    code = column.code
    if code in (types.BLOB_COMPRESSED, types.VARCHAR_COMPRESSED):
        values = pa.array(
            [None if one is None else _inflated(one) for one in values.to_pylist()], pa.binary()
        )
    if code == types.STRING and column.charset == "binary":
        values = _padded(values, column.meta)
    if not column.is_text:
        return values
    if column.charset in UTF8:
        return _utf8(values)
    octets = _octets(values)
    if column.charset not in WIDE and not (octets & 0x80).any():
        return _utf8(values)
    if column.charset == "latin1":
        return _latin1(values, octets)
    try:
        texts = [None if one is None else text_of(one, column.charset) for one in values.to_pylist()]
    except UnicodeDecodeError as error:
        raise MalformedLog(f"a text column has bytes that are not of its character set: {error}") from None
    return pa.array(texts, pa.string())


def _utf8(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise MalformedLog("a text column has bytes that are not of its character set") from None


def _edges(values: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)


def _octets(values: pa.Array) -> Bytes:
    """All bytes of the values of an array, end to end."""
    data = values.buffers()[2]
    if data is None or not len(values):
        return np.zeros(0, np.uint8)
    edges = _edges(values)
    return np.frombuffer(data, np.uint8)[edges[0] : edges[-1]]


_LATIN1_BYTES = np.array([len(LATIN1_TABLE[code].encode()) for code in range(256)], np.int32)


def _latin1(values: pa.Array, octets: Bytes) -> pa.Array:
    """All values as one text; a value then begins where the bytes before it end in UTF-8."""
    text = octets.tobytes().decode("latin-1").translate(LATIN1_TABLE).encode()
    places = np.concatenate([[0], np.cumsum(_LATIN1_BYTES[octets])]).astype(np.int32)
    edges = _edges(values)
    bits = (
        None
        if not values.null_count
        else pa.py_buffer(np.packbits(np.asarray(values.is_valid()), bitorder="little"))
    )
    offsets = pa.py_buffer(np.ascontiguousarray(places[edges - edges[0]]))
    return pa.Array.from_buffers(pa.string(), len(values), [bits, offsets, pa.py_buffer(text)])


def _masked(values: npt.NDArray[np.generic], nulls: Nulls | None, kind: pa.DataType) -> pa.Array:
    array = pa.array(values, mask=nulls)
    return (
        array if array.type == kind else array.view(kind) if pa.types.is_temporal(kind) else array.cast(kind)
    )


def _little_endian(raw: Bytes) -> npt.NDArray[np.uint64]:
    wide = np.zeros((len(raw), 8), np.uint8)
    wide[:, : raw.shape[1]] = raw
    return wide.view("<u8")[:, 0]


def _big_endian(raw: Bytes) -> npt.NDArray[np.uint64]:
    wide = np.zeros((len(raw), 8), np.uint8)
    wide[:, 8 - raw.shape[1] :] = raw
    return wide.view(">u8")[:, 0].astype(np.uint64)


def _integers(raw: Bytes, unsigned: bool) -> npt.NDArray[np.generic]:
    width = raw.shape[1]
    if width != 3:
        return raw.view(f"<{'u' if unsigned else 'i'}{width}")[:, 0]
    wide = np.zeros((len(raw), 4), np.uint8)
    wide[:, 1:] = raw
    # Shifted down from the top of the word, so that the sign is carried.
    return wide.view("<u4")[:, 0] >> 8 if unsigned else wide.view("<i4")[:, 0] >> 8


def _decimals(raw: Bytes, column: ColumnType, nulls: Nulls | None) -> pa.Array:
    """Big-endian groups of nine digits; the top bit is set for what is not negative, negative numbers have
    all bits inverted."""
    negative = raw[:, 0] & 0x80 == 0
    digits = np.where(negative[:, None], ~raw, raw)
    digits[:, 0] ^= 0x80
    kind = column.arrow
    words = kind.bit_width // 32
    limbs = [np.zeros(len(raw), np.uint64) for _ in range(words)]
    at = 0
    whole, part = column.precision - column.scale, column.scale
    sizes = [
        *([whole % 9] if whole % 9 else []),
        *[9] * (whole // 9),
        *[9] * (part // 9),
        *([part % 9] if part % 9 else []),
    ]
    used = 1
    for size in sizes:
        width = DIGIT_BYTES[size]
        carry = _big_endian(digits[:, at : at + width])
        if (carry >= 10**size).any() and not (nulls is not None and not (carry >= 10**size)[~nulls].any()):
            raise MalformedLog("a decimal has a group of digits that is too large")
        at += width
        for limb in range(used):  # a limb has 32 bits, so that limb · 10⁹ + carry fits into 64
            total = limbs[limb] * np.uint64(10**size) + carry
            limbs[limb] = total & np.uint64(0xFFFFFFFF)
            carry = total >> np.uint64(32)
        if used < words and carry.any():
            limbs[used] = carry
            used += 1
    flip = np.where(negative, np.uint64(0xFFFFFFFF), np.uint64(0))
    carry = negative.astype(np.uint64)
    out = np.empty((len(raw), words), "<u4")
    for limb in range(words):
        total = (limbs[limb] ^ flip) + carry
        out[:, limb] = total & np.uint64(0xFFFFFFFF)
        carry = total >> np.uint64(32)
    bits = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(kind, len(raw), [bits, pa.py_buffer(out)])


def _enumerated(index: npt.NDArray[np.int64], column: ColumnType, nulls: Nulls | None) -> pa.Array:
    """0 is the empty string that stands for a value which was none of the members."""
    if len(index) and int(index.max()) > len(column.members):
        raise MalformedLog(f"an ENUM of {len(column.members)} members has member {int(index.max())}")
    members = pa.array(["", *column.members], pa.string())
    return members.take(pa.array(index, mask=nulls))


def _sets(bits: npt.NDArray[np.uint64], column: ColumnType, nulls: Nulls | None) -> pa.Array:
    different, inverse = np.unique(bits, return_inverse=True)
    names = []
    for mask in different.tolist():
        if mask >> len(column.members):
            raise MalformedLog(f"a SET of {len(column.members)} members has the members {mask:b}")
        names.append(",".join(name for place, name in enumerate(column.members) if mask >> place & 1))
    return pa.array(names, pa.string()).take(pa.array(inverse.reshape(-1), mask=nulls))


def _padded(values: pa.Array, length: int) -> pa.Array:
    """The log leaves the zeros at the end of a BINARY away."""
    if not len(values):
        return values
    size = np.diff(_edges(values))
    if ((size == length) | ~np.asarray(values.is_valid())).all():
        return values
    return pa.array(
        [None if one is None else one.ljust(length, b"\0") for one in values.to_pylist()], pa.binary()
    )


COMPRESSED_LIMIT_BYTES = 1 << 30


def _inflated(value: bytes) -> bytes:
    """A value of a COMPRESSED column: a byte of method and width, the length, a deflated stream; or a zero
    byte and the value."""
    if not value:
        return value
    method, width = value[0] >> 4, value[0] & 0x07
    if method == 0:
        return value[1:]
    size = int.from_bytes(value[1 : 1 + width], "big")
    if method != 8 or size > COMPRESSED_LIMIT_BYTES:
        raise MalformedLog(f"a compressed column has a value of the unknown method {method}")
    try:
        plain = zlib.decompressobj(-15 if value[0] & 0x08 else 15).decompress(
            value[1 + width :], max(size, 1)
        )
    except zlib.error as error:
        raise MalformedLog(f"a value of a compressed column cannot be inflated: {error}") from None
    if len(plain) != size:
        raise MalformedLog("a value of a compressed column has not the length that it announces")
    return plain


Values = tuple[npt.NDArray[np.int64], Nulls]
_NEVER = np.zeros(0, bool)


def _days(year: npt.NDArray[np.int64], month: npt.NDArray[np.int64], day: npt.NDArray[np.int64]) -> Values:
    """Days since 1970-01-01 of the Gregorian calendar, and which are none."""
    impossible = (month < 1) | (month > 12) | (day < 1) | (day > 31) | (year < 1) | (year > 9999)
    # Years begin in March, so that the leap day is the last of its year.
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days, impossible


def _date(raw: Bytes, column: ColumnType) -> Values:
    packed = _little_endian(raw).astype(np.int64)
    days, impossible = _days(packed >> 9, packed >> 5 & 15, packed & 31)
    return days.astype(np.int32), impossible


def _fraction(raw: Bytes, digits: int) -> npt.NDArray[np.int64]:
    """Microseconds of the bytes after the seconds: hundredths in one byte, ten-thousandths in two, millionths
    in three."""
    if raw.shape[1] == 0:
        return np.zeros(len(raw), np.int64)
    return _big_endian(raw).astype(np.int64) * (1, 10_000, 100, 1)[(digits + 1) // 2]


def _timestamp2(raw: Bytes, column: ColumnType) -> Values:
    seconds = _big_endian(raw[:, :4]).astype(np.int64)
    micros = seconds * 1_000_000 + _fraction(raw[:, 4:], column.meta)
    return micros, micros == 0


def _timestamp(raw: Bytes, column: ColumnType) -> Values:
    seconds = _little_endian(raw).astype(np.int64)
    return seconds * 1_000_000, seconds == 0


def _datetime2(raw: Bytes, column: ColumnType) -> Values:
    packed = _big_endian(raw[:, :5]).astype(np.int64) - 0x8000000000
    months = packed >> 22
    days, impossible = _days(months // 13, months % 13, packed >> 17 & 31)
    seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    return days * DAY_US + seconds * 1_000_000 + _fraction(raw[:, 5:], column.meta), impossible


def _datetime(raw: Bytes, column: ColumnType) -> Values:
    packed = _little_endian(raw).astype(np.int64)
    date, time = packed // 1_000_000, packed % 1_000_000
    days, impossible = _days(date // 10_000, date // 100 % 100, date % 100)
    seconds = time // 10_000 * 3600 + time // 100 % 100 * 60 + time % 100
    return days * DAY_US + seconds * 1_000_000, impossible


def _time2(raw: Bytes, column: ColumnType) -> Values:
    below = raw.shape[1] - 3
    packed = _big_endian(raw).astype(np.int64) - (0x800000 << 8 * below)
    size = np.abs(packed)
    whole, part = size >> 8 * below, size & ((1 << 8 * below) - 1)
    seconds = (whole >> 12) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
    micros = seconds * 1_000_000 + part * (1, 10_000, 100, 1)[below]
    return np.where(packed < 0, -micros, micros), _NEVER


def _time(raw: Bytes, column: ColumnType) -> Values:
    packed = _integers(raw, False).astype(np.int64)
    size = np.abs(packed)
    seconds = size // 10_000 * 3600 + size // 100 % 100 * 60 + size % 100
    return np.where(packed < 0, -seconds, seconds) * 1_000_000, _NEVER


_TEMPORAL: dict[int, Callable[[Bytes, ColumnType], Values]] = {
    types.DATE: _date,
    types.NEWDATE: _date,
    types.TIMESTAMP: _timestamp,
    types.TIMESTAMP2: _timestamp2,
    types.DATETIME: _datetime,
    types.DATETIME2: _datetime2,
    types.TIME: _time,
    types.TIME2: _time2,
}
