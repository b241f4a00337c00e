"""What records look like: the bytes of a file as columns, by one of the formats.

| format | record | columns |
|---|---|---|
| `jsonl` | a line that is a JSON object | its fields; or the line as `value`, if asked |
| `lines` | a line | `value`, binary |
| `u32be`, `u32le` | a length of four bytes, then so many bytes | `value`, binary |
| `avro` | a record of an Avro container | its fields |
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import BadLogUrl, MalformedLog
from qanat.capture.files.avro import Header, decode_block, split_blocks
from qanat.capture.files.framing import Frames, Lines, Prefixed, records
from qanat.capture.files.json_columns import NotJson, as_text, is_object, json_columns
from qanat.capture.files.positions import WHOLE_BLOCK
from qanat.capture.table import Column

FORMATS = ("jsonl", "lines", "u32be", "u32le", "avro")
_SUFFIXES = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
    "avro": "avro",
    "log": "lines",
    "txt": "lines",
}
VALUE = (Column("value", pa.binary(), "bytes"),)
TEXT = (Column("value", pa.string(), "json"),)


class Chunk(NamedTuple):
    """Decoded records; `offsets` count from the start of the data, `consumed` too."""

    offsets: npt.NDArray[np.int64]
    indexes: npt.NDArray[np.uint32]
    columns: tuple[Column, ...]
    values: list[pa.Array]
    consumed: int
    """Where the record after these begins, if there is no more of the last block to come."""
    partial: bool = False
    """There is: the next chunk begins in the middle of the block that the last of these is in."""


class BadRecord(MalformedLog):
    """`offset`: where the record begins, counted from the start of the data."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


class Format(Protocol):
    @property
    def record_limit(self) -> int:
        """The longest record, or block, in bytes."""

    def decode(self, data: bytes, header: Header | None, skip: int, limit: int) -> Chunk | None:
        """At most so many records from the start of the data, or None if there is not a whole one.

        `skip`: so many records of what the data begins with were had: 1 record of a file of records, or the
        first of a block.
        """

    def last(self, data: bytes, header: Header | None) -> tuple[int, int, int] | None:
        """Offset and index of the last whole record, and where the next begins."""

    def is_record(self, rest: bytes) -> bool:
        """Whether what no newline ends is a record all the same, now that nothing will be appended to it."""


@dataclass(frozen=True, slots=True)
class Records:
    """Lines and length-prefixed records."""

    framing: Lines | Prefixed
    json: bool = False
    """Each is a JSON object."""
    fields: bool = False
    """Whose fields are the columns."""

    @property
    def record_limit(self) -> int:
        return self.framing.record_limit

    def decode(self, data: bytes, header: Header | None, skip: int, limit: int) -> Chunk | None:
        frames = self._split(data)
        count = len(frames.starts)
        if count <= skip and not (skip and count):
            return None
        stop = min(count, skip + limit)
        consumed = frames.consumed if stop == count else int(frames.starts[stop])
        frames = Frames(frames.starts[skip:stop], consumed)
        values = records(data, frames, self.framing)
        offsets = frames.starts
        columns: tuple[Column, ...] = VALUE
        arrays = [values]
        if self.json:
            there = _not_blank(values)
            if not there.all():
                values, offsets = values.filter(pa.array(there)), offsets[there]
            try:
                columns, arrays = self._parsed(values)
            except NotJson as error:
                if not error.row:
                    raise BadRecord(str(error), int(offsets[0])) from error
                consumed = int(offsets[error.row])  # what is before it can be had
                offsets = offsets[: error.row]
                columns, arrays = self._parsed(values[: error.row])
        return Chunk(offsets, np.zeros(len(offsets), np.uint32), columns, arrays, consumed)

    def _split(self, data: bytes) -> Frames:
        try:
            return self.framing.split(data)
        except MalformedLog as error:
            raise BadRecord(str(error), 0) from error

    def _parsed(self, values: pa.Array) -> tuple[tuple[Column, ...], list[pa.Array]]:
        if not self.fields:
            return TEXT, [as_text(values)]
        made = json_columns(values)
        return tuple(Column(one.name, one.values.type, one.declared) for one in made), [
            one.values for one in made
        ]

    def last(self, data: bytes, header: Header | None) -> tuple[int, int, int] | None:
        frames = self._split(data)
        return (int(frames.starts[-1]), 0, frames.consumed) if len(frames.starts) else None

    def is_record(self, rest: bytes) -> bool:
        return self.json and is_object(rest)


def _not_blank(values: pa.Array) -> npt.NDArray[np.bool_]:
    lengths = np.diff(
        np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    )
    there = lengths > 0
    short = np.flatnonzero(there & (lengths < 4))
    for row in short.tolist():  # `\r`, or some blanks: a JSON object has two bytes at least, so these are few
        there[row] = bool(values[row].as_py().strip())
    return there


@dataclass(slots=True)
class Avro:
    """Containers; the block that was decoded last is kept, since a read may want but a part of it."""

    record_limit: int
    _kept: tuple[Header, bytes, list[pa.Array]] | None = field(default=None, repr=False)

    def decode(self, data: bytes, header: Header | None, skip: int, limit: int) -> Chunk | None:
        if header is None:
            return None
        try:
            blocks, consumed = split_blocks(data, header.sync, self.record_limit)
        except MalformedLog as error:
            raise BadRecord(str(error), 0) from error
        if not blocks:
            return None
        taken: list[tuple[int, int, int, list[pa.Array]]] = []
        left, partial = limit, False
        for at, block in enumerate(blocks):
            if left <= 0:
                consumed = block.start
                break
            first = min(skip, block.records) if at == 0 else 0
            if first == block.records:
                continue
            try:
                columns = self._decoded(header, data[block.data_start : block.data_end], block.records)
            except MalformedLog as error:
                if not taken:
                    raise BadRecord(str(error), block.start) from error
                consumed = block.start
                break
            count = min(left, block.records - first)
            taken.append((block.start, first, count, [column.slice(first, count) for column in columns]))
            left -= count
            if first + count < block.records:
                consumed, partial = block.start, True
                break
        offsets = np.concatenate(
            [np.full(count, start, np.int64) for start, _, count, _ in taken] or [np.zeros(0, np.int64)]
        )
        indexes = np.concatenate(
            [np.arange(first, first + count, dtype=np.uint32) for _, first, count, _ in taken]
            or [np.zeros(0, np.uint32)]
        )
        values = [
            pa.concat_arrays([columns[at] for *_, columns in taken]) if taken else pa.array([], column.type)
            for at, column in enumerate(header.columns)
        ]
        return Chunk(offsets, indexes, header.columns, values, consumed, partial)

    def _decoded(self, header: Header, data: bytes, count: int) -> list[pa.Array]:
        if self._kept is not None and self._kept[0] is header and self._kept[1] == data:
            return self._kept[2]
        columns = decode_block(header, data, count)
        self._kept = (header, data, columns)
        return columns

    def last(self, data: bytes, header: Header | None) -> tuple[int, int, int] | None:
        if header is None:
            return None
        blocks, consumed = split_blocks(data, header.sync, self.record_limit)
        full = [block for block in blocks if block.records]
        return (full[-1].start, min(full[-1].records, WHOLE_BLOCK) - 1, consumed) if full else None

    def is_record(self, rest: bytes) -> bool:
        return False


def format_of(name: str, path: str, record_limit: int, as_value: bool) -> Format:
    """The format of that name, or the one that files of this name have."""
    if not name:
        suffix = path.rpartition("/")[2].rpartition(".")[2].rstrip("*")
        name = _SUFFIXES.get(suffix, "")
    match name:
        case "jsonl":
            return Records(Lines(record_limit), json=True, fields=not as_value)
        case "lines":
            return Records(Lines(record_limit))
        case "u32be":
            return Records(Prefixed(record_limit, "big"))
        case "u32le":
            return Records(Prefixed(record_limit, "little"))
        case "avro":
            return Avro(record_limit)
    given = f"{name!r} is not one" if name else f"the name {path!r} does not tell it"
    raise BadLogUrl(f"give the format of the records with the option format= ({', '.join(FORMATS)}); {given}")


def first_record(data: bytes, form: Format) -> bytes:
    """What the data begins with: a line as far as it goes, of other records as much as there is of the
    longest."""
    if isinstance(form, Records) and isinstance(form.framing, Lines):
        return data.partition(b"\n")[0]
    return data[: form.record_limit]
