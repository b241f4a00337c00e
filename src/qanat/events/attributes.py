"""The attribute section of a batch: one typed column per attribute name, as Arrow lays columns out.

| bytes | field |
|---|---|
| 4 | columns, at most 4,096 |
| 4 | bytes of the names, padded to 8, at most 2 MiB |
| 24 × columns | u32 name offset, u16 name length, u8 type, u8 encoding, u32 data offset from the section's start, u32 data bytes, u32 dictionary entries, u32 zero |
| … | names, UTF-8 |
| … | each column's data, every part padded to 8 |

Names and data follow each other in the order of the columns, without gaps: no byte belongs to two columns, so
decoding a section costs what its bytes are worth, whoever made it.

A column's data: a validity bitmap if encoding has bit 0 (absent rows are 0), then the values:
fixed widths as such, booleans as a bitmap, strings and binaries as u32 × (n + 1) offsets and bytes. With
encoding bit 1 (dictionary) there are instead codes (encoding bits 4–7: their width, 0, 1, 2 or 4 bytes a
row; 0 means that every row has entry 0) and then the offsets and bytes of the entries.

Columns are sorted by name and type, and no two are alike in both; an attribute whose values have several
types in one batch has several columns, each absent where another is present.
"""  # noqa: E501

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import methodcaller
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.events.errors import MalformedBatch
from qanat.events.layout import NAMES_LIMIT, ROWS_LIMIT, padded

Value = str | int | float | bool | bytes | None
Attributes = Mapping[str, "list[pa.Array]"]

COLUMNS_LIMIT = 4096
_HEAD = struct.Struct("<II")
_ENTRY = struct.Struct("<IHBBIIII")
_ENCODING_AT = 7
"""Of a column's entry, the byte that says how it is laid out."""
_VALID, _DICTIONARY = 1, 2
_STRING, _INT64, _UINT64, _FLOAT64, _BOOL, _BINARY = range(1, 7)
_ARROW_TYPES = {
    _STRING: pa.string(),
    _INT64: pa.int64(),
    _UINT64: pa.uint64(),
    _FLOAT64: pa.float64(),
    _BOOL: pa.bool_(),
    _BINARY: pa.binary(),
}
_CODE_TYPES = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}
_CONSTANT_BYTES = 4096
"""Largest column of one text that is kept ready, decoded."""
_ZEROS = pa.array(np.zeros(ROWS_LIMIT, np.uint8))
"""The codes of every column that has one value in all rows. Never written, so it takes address space and no
memory."""


def from_rows(rows: Sequence[Mapping[str, Value] | None]) -> dict[str, list[pa.Array]]:
    """Columns of a list of dicts; Arrow's own inference does it in one pass unless a name's types differ."""
    try:
        struct_array = pa.array(rows, from_pandas=False)
    except UnicodeEncodeError as error:
        raise MalformedBatch(f"an attribute cannot be written as UTF-8: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return _from_mixed_rows(rows)
    if pa.types.is_null(struct_array.type):
        return {}
    if not pa.types.is_struct(struct_array.type):
        raise MalformedBatch(f"attributes are a dict per event, not {struct_array.type}")
    # Inference widens: whole numbers beside fractions become fractions, text beside bytes becomes bytes.
    for field in struct_array.type:
        if field.type in (pa.float64(), pa.binary()):
            types = set(map(type, map(methodcaller("get", field.name), filter(None, rows))))
            if len(types - {type(None)}) > 1:
                return _from_mixed_rows(rows)
    return {
        field.name: [column]
        for field, column in zip(struct_array.type, struct_array.flatten(), strict=True)
        if column.null_count < len(column)
    }


def _from_mixed_rows(rows: Sequence[Mapping[str, Value] | None]) -> dict[str, list[pa.Array]]:
    columns: dict[tuple[str, int], list[Value]] = {}
    for i, row in enumerate(rows):
        if row is not None and not isinstance(row, Mapping):
            raise MalformedBatch(f"attributes are a dict per event, not {type(row).__name__}")
        for name, value in (row or {}).items():
            if not isinstance(name, str):
                raise MalformedBatch(f"an attribute's name is text, not {name!r}")
            if value is not None:
                columns.setdefault((name, _type_of(name, value)), [None] * len(rows))[i] = value
    result: dict[str, list[pa.Array]] = {}
    for (name, code), values in columns.items():
        result.setdefault(name, []).append(pa.array(values, _ARROW_TYPES[code]))
    return result


def _type_of(name: str, value: Value) -> int:
    match value:
        case bool() | np.bool_():
            return _BOOL
        case int() | np.integer():
            if not -(1 << 63) <= value < 1 << 64:
                raise MalformedBatch(f"attribute {name!r}: {value} does not fit 64 bits; send it as text")
            return _INT64 if value < 1 << 63 else _UINT64
        case float() | np.floating():
            return _FLOAT64
        case str():
            return _STRING
        case bytes():
            return _BINARY
    raise MalformedBatch(f"attribute {name!r}: {type(value).__name__} is not str, int, float, bool or bytes")


def normalise(name: str, array: Any, count: int) -> tuple[int, pa.Array]:
    """An Arrow array as one of the six types, offset 0; other types are refused by name."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if len(array) != count:
        raise MalformedBatch(f"attribute {name!r} has {len(array)} values for {count} events")
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    code = _code_of(name, kind)
    if pa.types.is_dictionary(array.type):
        if code != _STRING or array.dictionary.null_count or kind != pa.string():
            array = array.dictionary_decode()
    if not pa.types.is_dictionary(array.type) and array.type != _ARROW_TYPES[code]:
        array = array.cast(_ARROW_TYPES[code])
    if array.offset:
        array = pa.concat_arrays([array])
    return code, array


def check_type(name: str, kind: pa.DataType) -> None:
    """Refuses an array whose values cannot be an attribute."""
    if not pa.types.is_null(kind):
        _code_of(name, kind.value_type if pa.types.is_dictionary(kind) else kind)


def _code_of(name: str, kind: pa.DataType) -> int:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _STRING
    if types.is_uint64(kind):
        return _UINT64
    if types.is_integer(kind):
        return _INT64
    if types.is_floating(kind):
        return _FLOAT64
    if types.is_boolean(kind):
        return _BOOL
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _BINARY
    raise MalformedBatch(
        f"attribute {name!r} has type {kind}; cast it to text, a number, a boolean or binary"
    )


def encode(columns: Attributes, count: int, *, written_out: bool = False) -> bytes:
    """The section's bytes; b"" when no attribute has a value. `written_out`: a text that all rows have has a
    code in each of them as well."""
    normal = [
        (name, *normalise(name, array, count))
        for name, arrays in columns.items()
        for array in arrays
        if len(array) != count or array.null_count < count
    ]
    if not normal:
        return b""
    normal.sort(key=lambda column: column[:2])
    if len(normal) > COLUMNS_LIMIT:
        raise MalformedBatch(f"{len(normal)} attributes in one batch; at most {COLUMNS_LIMIT}")
    for (a, code, _), (b, other, _) in pairwise(normal):
        if (a, code) == (b, other):
            raise MalformedBatch(f"attribute {a!r} is given twice with one type")
    try:
        names = [name.encode() for name, _, _ in normal]
    except UnicodeEncodeError as error:
        raise MalformedBatch(f"an attribute's name cannot be written as UTF-8: {error}") from error
    names_blob = b"".join(names)
    if padded(len(names_blob)) > NAMES_LIMIT:
        raise MalformedBatch(
            f"the names of {len(names)} attributes take {len(names_blob)} bytes; at most {NAMES_LIMIT}"
        )
    at = _HEAD.size + _ENTRY.size * len(normal) + padded(len(names_blob))
    entries, parts, name_at = [], [], 0
    for encoded_name, (name, code, array) in zip(names, normal, strict=True):
        if not 0 < len(encoded_name) < 1 << 16:
            raise MalformedBatch(
                f"an attribute's name has 1 to 65,535 bytes, not {len(encoded_name)}: {name[:40]!r}"
            )
        data, encoding, entries_count = _encode_column(code, array, written_out)
        entries.append(
            _ENTRY.pack(name_at, len(encoded_name), code, encoding, at, len(data), entries_count, 0)
        )
        parts.append(data)
        name_at += len(encoded_name)
        at += len(data)
    head = _HEAD.pack(len(normal), padded(len(names_blob)))
    return b"".join([head, *entries, _pad(names_blob), *parts])


def _encode_column(code: int, array: pa.Array, written_out: bool) -> tuple[bytes, int, int]:
    encoding, dictionary_size = 0, 0
    parts: list[bytes] = []
    if array.null_count:
        encoding |= _VALID
        parts.append(_pad(_validity(array)))
    if code == _STRING:
        coded = used(array) if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        few = len(coded.dictionary) * 2 <= len(array) or len(coded.dictionary) == 1
        if few or (pa.types.is_dictionary(array.type) and _repeats(coded)):
            dictionary_size = len(coded.dictionary)
            width = (
                0
                if dictionary_size == 1 and not written_out
                else 1
                if dictionary_size < 256
                else 2
                if dictionary_size < 65536
                else 4
            )
            encoding |= _DICTIONARY | width << 4
            if width:
                codes = coded.indices.cast(_CODE_TYPES[width]).fill_null(0)
                parts.append(_pad(codes.buffers()[1].to_pybytes()[: len(array) * width]))
            parts += _varlen(coded.dictionary)
            return b"".join(parts), encoding, dictionary_size
        array = coded.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if code in (_STRING, _BINARY):
        parts += _varlen(array.fill_null("" if code == _STRING else b""))
    elif code == _BOOL:
        parts.append(_pad(_bits(np.asarray(array.fill_null(False)))))
    else:
        values = array.fill_null(0)
        parts.append(_pad(values.buffers()[1].to_pybytes()[: len(array) * 8]))
    return b"".join(parts), encoding, 0


def used(coded: pa.DictionaryArray) -> pa.DictionaryArray:
    """Without entries that no row has, where there are more entries than rows: few rows of a batch leave the
    rest of its texts behind."""
    if len(coded.dictionary) <= len(coded):
        return coded
    codes = coded.indices.fill_null(0) if coded.indices.null_count else coded.indices
    entries, places = np.unique(codes.to_numpy(zero_copy_only=False), return_inverse=True)
    indices = pa.array(places.astype(np.uint32), mask=np.asarray(coded.indices.is_null()))
    return pa.DictionaryArray.from_arrays(indices, coded.dictionary.take(pa.array(entries)))


def _repeats(coded: pa.DictionaryArray) -> bool:
    """Whether its texts, written out in every row, would take more than the entries and a code for each
    row."""
    texts, codes = coded.dictionary, coded.indices
    sizes = np.diff(np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1])
    written = sizes.astype(np.int64)[codes.drop_null().to_numpy(zero_copy_only=False)].sum()
    return bool(written > int(sizes.sum(dtype=np.int64)) + 4 * len(texts))


def _validity(array: pa.Array) -> bytes:
    return _bits(np.asarray(array.is_valid()))


def _bits(values: np.ndarray[Any, Any]) -> bytes:
    return np.packbits(values.astype(bool), bitorder="little").tobytes()


def _varlen(array: pa.Array) -> list[bytes]:
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return [_pad(bytes(4))]
    view = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    low, high = int(view[0]), int(view[-1])
    blob = bytes(memoryview(data)[low:high]) if data is not None else b""
    return [_pad((view - low).astype("<u4").tobytes()), _pad(blob)]


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def decode(section: memoryview, count: int) -> dict[str, list[pa.Array]]:
    """The section's columns as Arrow arrays over the same bytes; everything in it is checked."""
    try:
        return _decode(section, count)
    except (struct.error, pa.ArrowInvalid, pa.ArrowIndexError, UnicodeDecodeError, ValueError) as error:
        raise MalformedBatch(f"the attribute section is damaged: {error}") from error


def constants(section: memoryview) -> int:
    """How many columns of a section (decoded before, and so known to be sound) have one text in all rows, and
    no byte for a row."""
    columns, _ = _HEAD.unpack_from(section)
    table = np.frombuffer(section, np.uint8, columns * _ENTRY.size, _HEAD.size).reshape(-1, _ENTRY.size)
    return int(np.count_nonzero(table[:, _ENCODING_AT] & ~np.uint8(_VALID) == _DICTIONARY))


def _decode(section: memoryview, count: int) -> dict[str, list[pa.Array]]:
    columns, names_bytes = _HEAD.unpack_from(section)
    if columns > COLUMNS_LIMIT or names_bytes > NAMES_LIMIT:
        raise ValueError(f"{columns} columns with names of {names_bytes} bytes: too many")
    name_at = _HEAD.size + _ENTRY.size * columns
    names_at, at = name_at, name_at + names_bytes
    result: dict[str, list[pa.Array]] = {}
    previous = ("", 0)
    for i in range(columns):
        name_offset, name_size, code, encoding, offset, size, entries, zero = _ENTRY.unpack_from(
            section, _HEAD.size + i * _ENTRY.size
        )
        if name_offset != name_at - names_at or offset != at or offset % 8 or zero:
            raise ValueError(f"column {i} does not begin where the one before it ends")
        name_end, end = name_at + name_size, at + size
        if name_end > names_at + names_bytes or end > len(section):
            raise ValueError(f"column {i} reaches past the end")
        name = str(section[name_at:name_end], "utf-8")
        if (name, code) <= previous or not name:
            raise ValueError(f"column {i} is out of order")
        previous = (name, code)
        if code == _STRING and encoding == _DICTIONARY and size <= _CONSTANT_BYTES and entries == 1:
            dictionary = _constant(bytes(section[at:end]))
            array = pa.DictionaryArray.from_arrays(_ZEROS.slice(0, count), dictionary, safe=False)
        else:
            array = _decode_column(section[at:end], count, code, encoding, entries)
        result.setdefault(name, []).append(array)
        name_at, at = name_end, end
    if at != len(section):
        raise ValueError("bytes are left over")
    return result


@lru_cache(256)
def _constant(data: bytes) -> pa.Array:
    """The one text of a column that has the same in all rows, as `#table` often does: batch after batch it is
    the same again."""
    return _decode_column(memoryview(data), 0, _STRING, _DICTIONARY, 1).dictionary


def _decode_column(data: memoryview, count: int, code: int, encoding: int, entries: int) -> pa.Array:
    if code not in _ARROW_TYPES or encoding & 0x0C:
        raise ValueError(f"unknown type {code} or encoding {encoding}")
    reader = _Reader(data)
    validity = reader.take((count + 7) // 8) if encoding & _VALID else None
    kind = _ARROW_TYPES[code]
    if encoding & _DICTIONARY:
        width = encoding >> 4
        if code != _STRING or width not in (0, 1, 2, 4) or not entries:
            raise ValueError("a dictionary that cannot be")
        codes = reader.take(count * width) if width else _ZEROS.buffers()[1]
        indices = pa.Array.from_buffers(_CODE_TYPES[width or 1], count, [validity, codes])
        dictionary = pa.Array.from_buffers(kind, entries, [None, *reader.varlen(entries)])
        dictionary.validate(full=True)
        reader.finish()
        return pa.DictionaryArray.from_arrays(
            indices, dictionary, safe=width > 0
        )  # checks that there are such entries
    if encoding >> 4 or entries:
        raise ValueError("dictionary fields on a plain column")
    if code in (_STRING, _BINARY):
        buffers = [validity, *reader.varlen(count)]
    else:
        buffers = [validity, reader.take((count + 7) // 8 if code == _BOOL else count * 8)]
    reader.finish()
    array = pa.Array.from_buffers(kind, count, buffers)
    array.validate(full=True)
    return array


class _Reader:
    """Takes padded parts off a column's data, never past its end."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> pa.Buffer:
        if self.at + padded(size) > len(self.data):
            raise ValueError("a column is cut short")
        part = self.data[self.at : self.at + size]
        self.at += padded(size)
        return pa.py_buffer(part)

    def varlen(self, count: int) -> list[pa.Buffer]:
        offsets = self.take((count + 1) * 4)
        ends = np.frombuffer(offsets, "<u4")
        if ends[0] or (ends[1:] < ends[:-1]).any():
            raise ValueError("offsets do not rise from 0")
        return [offsets, self.take(int(ends[-1]))]

    def finish(self) -> None:
        if self.at != len(self.data):
            raise ValueError("a column has bytes left over")
