"""Attributes of a batch as two maps per row, and back: whole columns at a time.

A batch has a typed column per attribute name; a row of the tabular form has a map of texts and, where some
are not text, a map of their types. The text of a number is the shortest that reads back to the same one, of
binary its bytes in hexadecimal digits.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.events.batch import Batch
from qanat.events.encode import Array
from qanat.events.errors import MalformedBatch

RANGE_ATTRIBUTE = "@range"
"""In a tombstone's row alone: how many sequence numbers it stands for, where that is more than one."""
_TEXTS = pa.map_(pa.string(), pa.string())
_TYPES = {
    "int": pa.int64(),
    "uint": pa.uint64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "binary": pa.binary(),
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_VALUES = np.full(256, 255, np.uint8)
_VALUES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_VALUES[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


# --- from columns to maps ---------------------------------------------------------------------------


def maps_of(batch: Batch) -> tuple[pa.Array, pa.Array]:
    """The columns `attributes` and `types` of a batch's rows."""
    columns = [(name, array) for name, arrays in batch.attributes().items() for array in arrays]
    ranges = batch.ranges
    if ranges is not None and (ranges > 1).any():
        columns.append((RANGE_ATTRIBUTE, pa.array(ranges, mask=ranges == 1)))
        columns.sort(key=lambda column: column[0])
    if not columns:
        empty = pa.py_buffer(bytes(4 * (batch.count + 1)))
        nothing = pa.nulls(0, _TEXTS.key_type)
        entries = pa.StructArray.from_arrays([nothing, nothing], fields=[_TEXTS.key_field, _TEXTS.item_field])
        none = pa.Array.from_buffers(_TEXTS, batch.count, [None, empty], children=[entries])
        return none, pa.nulls(batch.count, _TEXTS)
    texts, typed = [], []
    for name, array in columns:
        text, kind = _text(array)
        texts.append((name, text))
        if kind:
            typed.append((name, _where_valid(kind, array)))
    types = _map(typed, batch.count, null_if_empty=True) if typed else pa.nulls(batch.count, _TEXTS)
    return _map(texts, batch.count, null_if_empty=False), types


def _text(array: pa.Array) -> tuple[pa.Array, str]:
    """An attribute's values as text, and the word for their type; the word is empty for text."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string(array.type):
        return array, ""
    if pa.types.is_binary(array.type):
        return _hexadecimal(array), "binary"
    return array.cast(pa.string()), _NAMES[array.type]


def _where_valid(word: str, array: pa.Array) -> pa.Array:
    return pa.array([word]).take(pa.array(np.zeros(len(array), np.int32), mask=np.asarray(array.is_null())))


def _map(columns: list[tuple[str, pa.Array]], count: int, *, null_if_empty: bool) -> pa.Array:
    """Row by row the entries of all columns that have a value there, in the columns' order."""
    wide = len(columns)
    there = np.ones((count, wide), bool)
    for j, (_, array) in enumerate(columns):
        if array.null_count:
            there[:, j] = np.asarray(array.is_valid())
    lengths = there.sum(axis=1)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if int(offsets[-1]) >= 1 << 31:
        raise MalformedBatch(
            f"{offsets[-1]} attributes do not fit into one Arrow array; take smaller batches"
        )
    places = np.flatnonzero(there.reshape(-1))  # row × wide + column, in the rows' order
    row, column = np.divmod(places, wide)
    keys = pa.array([name for name, _ in columns]).take(pa.array(column))
    if wide == 1 and len(places) == count:
        items = columns[0][1]
    else:
        items = pa.concat_arrays([array for _, array in columns]).take(pa.array(column * count + row))
    if items.offset:
        items = pa.concat_arrays([items])
    entries = pa.StructArray.from_arrays([keys, items], fields=[_TEXTS.key_field, _TEXTS.item_field])
    validity = None
    if null_if_empty and (lengths == 0).any():
        validity = pa.py_buffer(np.packbits(lengths > 0, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(_TEXTS, count, buffers, children=[entries])


def _hexadecimal(array: pa.Array) -> pa.Array:
    low, high, offsets = _bounds(array)
    data = array.buffers()[2]
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[low:high]
    return _of_bytes(pa.string(), array, (offsets - low) * 2, _DIGITS[raw].reshape(-1))


def _bounds(array: pa.Array) -> tuple[int, int, Array]:
    if not len(array):
        return 0, 0, np.zeros(1, np.int32)
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return int(offsets[0]), int(offsets[-1]), offsets


def _of_bytes(kind: pa.DataType, like: pa.Array, offsets: Array, data: Array) -> pa.Array:
    validity = None
    if like.null_count:
        validity = pa.py_buffer(np.packbits(np.asarray(like.is_valid()), bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(like), buffers)


# --- from maps to columns ---------------------------------------------------------------------------


def attributes_from(attributes: pa.Array | None, types: pa.Array | None) -> dict[str, list[pa.Array]]:
    """Typed columns of the maps of some rows; the loop is over names and types, never over rows."""
    if attributes is None or not len(attributes):
        return {}
    row, name, text = _entries(attributes)
    if not len(row):
        return {}
    coded = name.dictionary_encode()
    names, codes = coded.dictionary.to_pylist(), np.asarray(coded.indices)
    kinds = _kinds_of(len(attributes), row, names, codes, types)
    result: dict[str, list[pa.Array]] = {}
    order = ("", *_TYPES)
    for code, attribute in enumerate(names):
        mine = codes == code
        for number in np.unique(kinds[mine]).tolist():
            chosen = np.flatnonzero(mine & (kinds == number))
            result.setdefault(attribute, []).append(
                _typed(attribute, order[number], text, row[chosen], chosen, len(attributes))
            )
    return dict(sorted(result.items()))


def _entries(maps: pa.Array) -> tuple[Array, pa.Array, pa.Array]:
    """Row, key and item of every entry whose item is not null."""
    offsets = np.frombuffer(maps.buffers()[1], np.int32)[maps.offset : maps.offset + len(maps) + 1]
    lengths = np.diff(offsets)
    if maps.null_count:
        lengths = lengths * np.asarray(maps.is_valid())
        starts = np.repeat(offsets[:-1] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
        places = pa.array(np.arange(len(starts)) + starts)
        keys, items = maps.keys.take(places), maps.items.take(places)
    else:
        low, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys, items = maps.keys.slice(low, size), maps.items.slice(low, size)
    row = np.repeat(np.arange(len(maps)), lengths)
    if items.null_count:
        valid = items.is_valid()
        return row[np.asarray(valid)], keys.filter(valid), items.filter(valid)
    return row, keys, items


def _kinds_of(count: int, row: Array, names: list[Any], codes: Array, types: pa.Array | None) -> Array:
    """For every attribute the number of its type, 0 for text."""
    kinds = np.zeros(len(row), np.int64)
    if types is None or types.null_count == len(types):
        return kinds
    type_row, type_name, word = _entries(types)
    number = pc.index_in(word, value_set=pa.array(list(_TYPES)))
    if number.null_count:
        strange = pc.filter(word, number.is_null())[0].as_py()
        raise MalformedBatch(f"{strange!r} is no type of an attribute; there are {', '.join(_TYPES)}")
    code = pc.index_in(type_name, value_set=pa.array(names, pa.string()))
    known = np.asarray(code.is_valid())
    place = np.asarray(code.fill_null(0))[known] * count + type_row[known]
    order = np.argsort(place)
    sought = codes * count + row
    if not len(place):
        return kinds
    at = np.minimum(np.searchsorted(place[order], sought), len(place) - 1)
    found = place[order][at] == sought
    kinds[found] = (np.asarray(number)[known][order][at] + 1)[found]
    return kinds


def _typed(name: str, kind: str, text: pa.Array, row: Array, chosen: Array, count: int) -> pa.Array:
    """One column of `count` rows: these texts in these rows, read as `kind`."""
    where = np.full(count, -1, np.int64)
    where[row] = chosen
    values = text.take(pa.array(where, mask=where < 0))
    if not kind:
        return values
    try:
        return _unhexed(values) if kind == "binary" else values.cast(_TYPES[kind])
    except pa.ArrowInvalid as error:
        raise MalformedBatch(
            f"attribute {name!r} is said to be {kind}, but its text is not: {error}"
        ) from None


def _unhexed(array: pa.Array) -> pa.Array:
    low, high, offsets = _bounds(array)
    data = array.buffers()[2]
    digits = _VALUES[np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[low:high]]
    if (digits == 255).any() or ((offsets - low) % 2).any():
        raise pa.ArrowInvalid("hexadecimal digits come in pairs of 0-9 and a-f")
    return _of_bytes(pa.binary(), array, (offsets - low) // 2, digits[0::2] << 4 | digits[1::2])
