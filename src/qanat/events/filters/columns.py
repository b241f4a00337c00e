"""A batch as filters see it: by name, a table of values and for each row which value it has.

A test is evaluated once per value of the table, then spread over the rows. For text in a dictionary the table
is the dictionary. What a value may be compared as is decided here alone, for every evaluator:

- text: a string, or binary that is valid UTF-8
- number: an int64, uint64 or float64 other than NaN, or text that spells a number
- truth: a boolean, or the text `true` or `false`
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.events.batch import Batch
from qanat.events.filters import numbers, patterns
from qanat.events.filters.numbers import Array, Numbers

# By value of Kind. From a list Arrow would first import pandas, if that is installed: half a second at every
# process's start.
_KINDS = pa.Array.from_buffers(
    pa.string(),
    3,
    [None, pa.py_buffer(np.array([0, 4, 6, 15], np.int32)), pa.py_buffer(b"datagctombstone")],
)
# Arrow searches binary as Latin-1, byte by byte: these are the well-formed sequences of Unicode's table 3-7.
_VALID_UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)


class Part(NamedTuple):
    """Values of one type, from this place in the table on."""

    at: int
    values: pa.Array


class Column:
    """The values of one name, and which value each row has.

    `codes` has an entry per row: an index into the table, or -1 where the event has no such attribute. It is
    None where row i simply has value i, or nothing if that is null.
    """

    def __init__(self, parts: list[Part], size: int, codes: Array | None) -> None:
        self.parts, self.size, self.codes = parts, size, codes
        self._numbers: Numbers | None = None
        self._truths: Array | None = None
        self._texts: list[Part] | None = None

    def spread(self, flags: Array) -> Array:
        """Flags of the values as flags of the rows."""
        if self.codes is None:
            return flags
        return np.append(flags, False)[self.codes]  # -1 takes the last

    def codes_or_rows(self) -> Array:
        """An index into the table per row, -1 for none, whatever the form of the column."""
        if self.codes is None:
            self.codes = np.where(self.present(), np.arange(self.size), -1)
        return self.codes

    def present(self) -> Array:
        """Which rows have a value."""
        if self.codes is not None:
            return np.asarray(self.codes >= 0)
        return np.concatenate([_flags(part.values.is_valid()) for part in self.parts])

    @property
    def texts(self) -> list[Part]:
        """The parts that are text, as Arrow strings; binary that is not UTF-8 becomes null."""
        if self._texts is None:
            self._texts = [
                Part(part.at, text) for part in self.parts if (text := _as_text(part.values)) is not None
            ]
        return self._texts

    @property
    def numbers(self) -> Numbers:
        """The number that each value of the table is, or NaN."""
        if self._numbers is None:
            self._numbers = numbers.join([_as_numbers(part.values) for part in self._in_order()])
        return self._numbers

    @property
    def truths(self) -> Array:
        """1 for true, 0 for false, -1 for neither, per value of the table."""
        if self._truths is None:
            truths = np.full(self.size, -1, np.int8)
            for at, values in self.parts:
                if pa.types.is_boolean(values.type):
                    truths[at : at + len(values)] = (
                        values.cast(pa.int8()).fill_null(-1).to_numpy(zero_copy_only=False)
                    )
            for truth, word in ((1, "true"), (0, "false")):
                truths[self.flags_of_text(functools.partial(pc.equal, word))] = truth
            self._truths = truths
        return self._truths

    def flags_of_text(self, test: Callable[[pa.Array], pa.BooleanArray]) -> Array:
        """A test of texts as a flag per value of the table; what is not text fails."""
        flags = np.zeros(self.size, bool)
        for at, text in self.texts:
            flags[at : at + len(text)] = _flags(test(text))
        return flags

    def _in_order(self) -> list[Part]:
        # Texts are converted once: `_as_numbers` of a binary part takes its string form.
        as_text = {part.at: part for part in self.texts}
        return [as_text.get(part.at, part) for part in self.parts]


class View:
    """The columns of one batch, each made when first asked for.

    With `distinct`, plain text is made into a dictionary: right where many tests look at it.
    """

    def __init__(self, batch: Batch, distinct: bool = False) -> None:
        self.batch, self._distinct = batch, distinct
        self._columns: dict[str, Column | None] = {}
        self._attributes: dict[str, list[pa.Array]] | None = None

    def column(self, name: str) -> Column | None:
        """The column, or None where no row has one."""
        if name not in self._columns:
            if self._attributes is None:
                self._attributes = self.batch.attributes()
            arrays = _built_in(self.batch, name) if name[0] == "@" else self._attributes.get(name, [])
            self._columns[name] = _column(arrays, self.batch.count, self._distinct) if arrays else None
        return self._columns[name]


def _column(arrays: list[pa.Array], rows: int, distinct: bool) -> Column:
    if len(arrays) == 1 and not _coded(arrays[0], distinct):
        return Column([Part(0, arrays[0])], rows, None)
    parts, codes, size = [], np.full(rows, -1, np.int64), 0
    for array in arrays:
        if _coded(array, distinct):
            values, indices = _dictionary(array)
        else:
            values, indices = array, np.where(_flags(array.is_valid()), np.arange(rows), -1)
        # Where two arrays hold a value for one row, the later counts, as in `Batch.attribute_row`.
        codes = np.where(indices >= 0, indices + size, codes)
        parts.append(Part(size, values))
        size += len(values)
    return Column(parts, size, codes)


def _coded(array: pa.Array, distinct: bool) -> bool:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return True
    return distinct and (pa.types.is_string(kind) or _is_binary(kind))


def _dictionary(array: pa.Array) -> tuple[pa.Array, Array]:
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices = array.indices
    plain = indices.fill_null(0) if indices.null_count else indices
    codes = plain.to_numpy(zero_copy_only=False).astype(np.int64)
    if indices.null_count:
        codes[_flags(indices.is_null())] = -1
    if len(array.dictionary) <= max(len(array), 64):
        return array.dictionary, codes
    # A few rows of a batch with a large dictionary: look only at the values they have.
    used, codes = np.unique(codes, return_inverse=True)
    absent = int(len(used) > 0 and used[0] < 0)
    return array.dictionary.take(pa.array(used[absent:])), codes - absent


def _built_in(batch: Batch, name: str) -> list[pa.Array]:
    match name:
        case "@key":
            keys = batch.keys()
            if keys is None:
                return []
            if pa.types.is_fixed_size_binary(keys.type):
                keys = keys.cast(pa.binary())
            empty = _flags(pc.equal(pc.binary_length(keys), 0))
            return [pc.if_else(pa.array(empty), None, keys) if empty.any() else keys]
        case "@seq":
            return [pa.array(batch.seqs())]
        case "@time":
            return [pa.array(batch.times())]
        case "@size":
            return [pa.array(batch.payload_sizes())]
        case "@kind":
            kinds = batch.kinds
            codes = np.zeros(batch.count, np.uint8) if kinds is None else kinds
            return [pa.DictionaryArray.from_arrays(pa.array(codes), _KINDS)]
        case "@source":
            return _sources(batch)
        case _:
            return []


def _sources(batch: Batch) -> list[pa.Array]:
    names = batch.source_names
    if not names:
        return []
    codes = batch.source_codes()
    codes = np.zeros(batch.count, np.uint16) if codes is None else codes
    return [pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.string()))]


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _as_text(values: pa.Array) -> pa.Array | None:
    if pa.types.is_string(values.type):
        return values
    if not _is_binary(values.type):
        return None
    values = values.cast(pa.binary())
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        valid = _flags(pc.match_substring_regex(values, _VALID_UTF8))
        return pc.if_else(pa.array(valid), values, None).cast(pa.string())


def _as_numbers(values: pa.Array) -> Numbers:
    kind = values.type
    if pa.types.is_string(kind):
        return numbers.of_texts(values)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return Numbers(np.full(len(values), np.nan))
    absent = None if not values.null_count else ~_flags(values.is_valid())
    plain = (values if absent is None else values.fill_null(0)).to_numpy(zero_copy_only=False)
    result = numbers.of_floats(plain) if pa.types.is_floating(kind) else numbers.of_integers(plain)
    if absent is not None:
        result.hi[absent] = np.nan
    return result


def _flags(values: pa.BooleanArray) -> Array:
    return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), bool)


def search(column: Column, pattern: str) -> Array:
    """A regular expression as a flag per value of the table."""
    return column.flags_of_text(lambda text: patterns.search(text, pattern))
