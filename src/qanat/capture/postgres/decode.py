"""Rows of `pgoutput` decoded into columns, a table at a time: the bytes of many messages in, Arrow columns
out.

A row is a message of its own: type, table, then one or two tuples, each a number of columns and for each
column `n` (null), `u` (stored out of line and not changed) or `t`, a length and a text. All rows of a table
are walked in step, one column after the other, with NumPy; a column's texts are then gathered and cast by
Arrow. Nothing is allocated by a length that was not checked against the bytes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.postgres.messages import Kind
from qanat.capture.postgres.types import Type
from qanat.capture.table import Column, Table

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_KEY, _OLD, _NEW = ord("K"), ord("O"), ord("N")


class Payloads:
    """Messages laid end to end, with readers of big-endian numbers at many places at once."""

    __slots__ = ("_bytes", "_u16", "_u32", "_u64", "buffer", "data", "ends", "kinds", "lengths", "starts")

    def __init__(self, data: bytes, lengths: Ints) -> None:
        if len(lengths) and lengths.min() < 1:
            raise MalformedLog("a pgoutput message is empty")
        self._bytes = data
        self.lengths = lengths
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.buffer = pa.py_buffer(data)
        self.data = np.frombuffer(data, np.uint8)
        self.kinds = self.data[self.starts]
        size = len(data)
        self._u16 = np.ndarray((max(size - 1, 0),), ">u2", data, strides=(1,))
        self._u32 = np.ndarray((max(size - 3, 0),), ">u4", data, strides=(1,))
        self._u64 = np.ndarray((max(size - 7, 0),), ">u8", data, strides=(1,))

    @classmethod
    def joined(cls, payloads: list[bytes]) -> "Payloads":
        return cls(b"".join(payloads), np.fromiter(map(len, payloads), np.int64, len(payloads)))

    def message(self, number: int) -> bytes:
        return self._bytes[self.starts[number] : self.ends[number]]

    def between(self, start: int, stop: int) -> memoryview:
        """The bytes of some messages."""
        return memoryview(self._bytes)[self.starts[start] : self.ends[stop - 1]]

    def u16(self, at: Ints) -> Ints:
        return self._u16[at].astype(np.int64)

    def u32(self, at: Ints) -> Ints:
        return self._u32[at].astype(np.int64)

    def u64(self, at: Ints) -> npt.NDArray[np.uint64]:
        return self._u64[at].astype(np.uint64)


def must_fit(at: Ints, size: int, ends: Ints) -> None:
    if len(at) and (at + size > ends).any():
        raise MalformedLog("a row message of pgoutput ends inside a value")


@dataclass(slots=True)
class Cells:
    """One column of some rows: where each text is, and what is there instead."""

    kinds: npt.NDArray[np.uint8]
    starts: Ints
    lengths: Ints


@dataclass(slots=True)
class Tuples:
    """One image of some rows. `there` says which rows have it; the cells of others are null."""

    there: Bools
    cells: list[Cells]


def walk(payloads: Payloads, at: Ints, ends: Ints, there: Bools, columns: int) -> tuple[Tuples, Ints]:
    """The tuples that begin at these places, where there is one, and where they end."""
    rows = np.flatnonzero(there)
    place, limit = at[rows], ends[rows]
    must_fit(place, 2, limit)
    if (payloads.u16(place) != columns).any():
        raise MalformedLog(f"a row has another number of columns than the {columns} of its table")
    place = place + 2
    cells = []
    for _ in range(columns):
        must_fit(place, 1, limit)
        kinds = payloads.data[place]
        texts = kinds == _TEXT
        if not (texts | (kinds == _NULL) | (kinds == _UNCHANGED)).all():
            raise MalformedLog("a column of a row is neither null, nor unchanged, nor text")
        if texts.all():
            must_fit(place, 5, limit)
            lengths = payloads.u32(place + 1)
            starts = place + 5
            place = starts + lengths
        else:
            must_fit(place[texts], 5, limit[texts])
            lengths = np.zeros(len(place), np.int64)
            lengths[texts] = payloads.u32(place[texts] + 1)
            starts = place + np.where(texts, 5, 1)
            place = starts + lengths
        must_fit(place, 0, limit)
        cells.append(Cells(kinds, starts, lengths))
    if len(rows) == len(there):
        return Tuples(there, cells), place
    after = at.copy()
    after[rows] = place
    nowhere = np.minimum(at, ends)
    return Tuples(there, [_spread(cell, rows, nowhere) for cell in cells]), after


def _spread(cells: Cells, rows: Ints, at: Ints) -> Cells:
    kinds = np.full(len(at), _NULL, np.uint8)
    starts, lengths = at.copy(), np.zeros(len(at), np.int64)
    kinds[rows], starts[rows], lengths[rows] = cells.kinds, cells.starts, cells.lengths
    return Cells(kinds, starts, lengths)


@dataclass(slots=True)
class Images:
    """Both images of some rows of one table, not yet turned into values."""

    before: Tuples | None
    after: Tuples | None
    key_only: Bools
    """Rows whose image before has the columns of the key alone."""


def images(payloads: Payloads, rows: Ints, prefix: int, columns: int) -> Images:
    """The images of rows given by their numbers; `prefix` bytes stand between a message's type and its
    table."""
    ends, kinds = payloads.ends[rows], payloads.kinds[rows]
    at = payloads.starts[rows] + 5 + prefix
    must_fit(at, 1, ends)
    marks = payloads.data[at]
    keys, olds = marks == _KEY, marks == _OLD
    inserted, deleted = kinds == Kind.INSERT, kinds == Kind.DELETE
    had = keys | olds
    if (had & inserted).any() or (deleted & ~had).any() or not (had | (marks == _NEW)).all():
        raise MalformedLog("a row message of pgoutput does not say which image follows")
    before: Tuples | None = None
    if had.any():
        before, at = walk(payloads, at + 1, ends, had, columns)
        at = np.where(had, at, at - 1)
    after: Tuples | None = None
    news = ~deleted
    if news.any():
        must_fit(at[news], 1, ends[news])
        if (payloads.data[at[news]] != _NEW).any():
            raise MalformedLog("an update in pgoutput has no new image")
        after, at = walk(payloads, at + 1, ends, news, columns)
        at = np.where(news, at, at - 1)
    if (at != ends).any():
        raise MalformedLog("a row message of pgoutput has bytes after its row")
    if before is not None and after is not None:
        _fill_unchanged(before, after)
    return Images(before, after, keys)


def _fill_unchanged(before: Tuples, after: Tuples) -> None:
    """A whole old row has what the new one leaves out."""
    for old, new in zip(before.cells, after.cells, strict=True):
        known = (new.kinds == _UNCHANGED) & (old.kinds == _TEXT)
        if known.any():
            new.starts = np.where(known, old.starts, new.starts)
            new.lengths = np.where(known, old.lengths, new.lengths)
            new.kinds = np.where(known, _TEXT, new.kinds).astype(np.uint8)


def unchanged(after: Tuples | None, table: Table) -> dict[str, Bools] | None:
    if after is None:
        return None
    found = {
        column.name: bits
        for column, cells in zip(table.columns, after.cells, strict=True)
        if (bits := cells.kinds == _UNCHANGED).any()
    }
    return found or None


def texts(payloads: Payloads, cells: Cells) -> pa.Array:
    """A column's texts as a binary array.

    The offsets name value, gap, value, gap, … over the messages as they are; Arrow then takes every other
    one.
    """
    count = len(cells.starts)
    large = payloads.buffer.size > np.iinfo(np.int32).max
    offsets = np.empty(2 * count + 1, np.int64 if large else np.int32)
    offsets[0:-1:2] = cells.starts
    offsets[1::2] = cells.starts + cells.lengths
    offsets[-1] = offsets[-2] if count else 0
    pieces = pa.Array.from_buffers(
        pa.large_binary() if large else pa.binary(), 2 * count, [None, pa.py_buffer(offsets), payloads.buffer]
    )
    there = cells.kinds == _TEXT
    chosen = pa.array(np.arange(0, 2 * count, 2), mask=None if there.all() else ~there)
    return pieces.take(chosen)


def recoded(raw: pa.Array, codec: str) -> pa.Array:
    """Texts that are not in UTF-8, in UTF-8; those that are no texts stay as they are."""
    if not codec:
        return raw

    def one(value: bytes | None) -> bytes | None:
        try:
            return value if value is None or value.isascii() else value.decode(codec).encode()
        except UnicodeDecodeError:
            return value

    return pa.array(map(one, raw.to_pylist()), raw.type)


def decoded(raw: pa.Array, kind: Type) -> pa.Array:
    """Raises Arrow's error where a value is not UTF-8, or not of the type."""
    if kind.decode is None and kind.arrow == pa.binary():
        return raw.cast(pa.binary())
    strings = raw.cast(pa.string())
    return strings if kind.decode is None else kind.decode(strings)


def misfits(raw: pa.Array, kind: Type) -> Bools:
    """Which rows a type cannot hold, found by halves: there are few of them."""
    bad = np.zeros(len(raw), bool)
    todo = [(0, len(raw))]
    while todo:
        start, stop = todo.pop()
        try:
            decoded(raw.slice(start, stop - start), kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if stop - start == 1:
                bad[start] = True
            else:
                middle = (start + stop) // 2
                todo += [(start, middle), (middle, stop)]
    return bad


def loosened(table: Table, names: frozenset[str], binary: frozenset[str]) -> Table:
    """The version of a table for rows whose values do not fit some columns: these are text, or bytes if not
    even that."""

    def loosen(column: Column) -> Column:
        if column.name not in names:
            return column
        arrow = pa.binary() if column.name in binary else pa.string()
        return Column(column.name, arrow, column.declared, column.key)

    return Table(table.database, table.schema, table.name, tuple(map(loosen, table.columns)))
