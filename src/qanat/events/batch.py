"""The batch: the unit in which events travel, rest and are filtered.

Its bytes are described in `layout` (header, columns) and `attributes` (attribute section). A `Batch` is
a view: of bytes that came from a socket or lie in a mapped file, and perhaps of a range of their rows. NumPy
and Arrow see the columns without copying; whatever forwards a batch forwards its bytes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.events import attributes as attribute_section
from qanat.events import layout
from qanat.events.attributes import Value
from qanat.events.encode import (
    Array,
    Blobs,
    Draft,
    Strings,
    decode_sources,
    encode,
    prepare,
    strings,
    uniform,
)
from qanat.events.errors import MalformedBatch
from qanat.events.layout import (
    FRAME_LIMIT,
    HEADER_BYTES,
    Buffer,
    Columns,
    Header,
    Kind,
    locate,
    number,
    padded,
    peek,
    row_width,
    stream_id,
)
from qanat.events.verify import verify_body, verify_rows

__all__ = [
    "FRAME_LIMIT",
    "HEADER_BYTES",
    "Batch",
    "Buffer",
    "Header",
    "Kind",
    "decode_all",
    "number",
    "peek",
    "stream_id",
]


class Batch:
    """Some rows of an encoded batch. Immutable; making one from bytes copies nothing."""

    __slots__ = ("_attributes", "_columns", "_data", "_hi", "_lo", "_seqs", "_sources", "checked", "header")

    def __init__(self, data: memoryview, header: Header, lo: int, hi: int) -> None:
        self._data, self.header, self._lo, self._hi = data, header, lo, hi
        self._columns: Columns | None = None
        self._attributes: dict[str, list[pa.Array]] | None = None
        self._seqs: Array | None = None
        self._sources: list[str] | None = None
        self.checked = False
        """Whether its predicates are known to be good."""

    # --- making one ---------------------------------------------------------------------------------

    @staticmethod
    def decode(data: Buffer, *, limit: int = FRAME_LIMIT, verify: bool = True) -> "Batch":
        """The batch at the start of `data`; what follows it is ignored (its `size` says where it ends).

        With `verify` every byte is checked: both checksums, and that the columns are what they must be.
        Without it only the header is, which is right for bytes that this process has verified before.
        """
        view = memoryview(data)
        header = peek(view, limit)
        if header.size != len(view):
            if header.size > len(view):
                raise MalformedBatch(f"the batch has {header.size} bytes, but only {len(view)} are here")
            view = view[: header.size]
        batch = Batch(view, header, 0, header.count)
        if verify:
            verify_body(batch)
        return batch

    @staticmethod
    def build(stream: int, payloads: Blobs, **columns: Any) -> "Batch":
        """A batch from columns; see `encode.prepare` for what they may be."""
        return from_draft(prepare(stream, payloads, **columns))

    # --- what it covers -----------------------------------------------------------------------------

    @property
    def stream(self) -> int:
        return self.header.stream

    @property
    def count(self) -> int:
        """Rows."""
        return self._hi - self._lo

    @property
    def first(self) -> int:
        """The first sequence number covered, by a row or by the absence of filtered rows before it."""
        if self._lo == 0 or self.is_dense:
            return self.header.first + self._lo
        return int(self._all_seqs()[self._lo - 1]) + 1

    @property
    def last(self) -> int:
        if self._hi == self.header.count:
            return self.header.first + self.header.span - 1
        if self.is_dense:
            return self.header.first + self._hi - 1
        return int(self._all_seqs()[self._hi - 1]) if self._hi else self.header.first - 1

    @property
    def span(self) -> int:
        return self.last - self.first + 1

    @property
    def is_whole(self) -> bool:
        """Whether this is all rows of its bytes."""
        return self._lo == 0 and self._hi == self.header.count

    @property
    def is_dense(self) -> bool:
        """Whether row i is simply first + i."""
        return not self.header.flags & layout.SEQS

    @property
    def size(self) -> int:
        """Bytes of the encoded batch that the rows are a part of."""
        return self.header.size

    @property
    def virtual_size(self) -> int:
        """Bytes with the payload that a ghost leaves out: what a link would carry."""
        header = self.header
        return header.size + (header.payload_bytes if header.flags & layout.GHOST else 0)

    @property
    def time_us(self) -> int:
        return self.header.time_us

    def __len__(self) -> int:
        return self._hi - self._lo

    def __repr__(self) -> str:
        return f"<Batch {self.first}..{self.last} of stream {self.stream:#x}: {self.count} rows>"

    # --- columns ------------------------------------------------------------------------------------

    @property
    def kinds(self) -> Array | None:
        """Kinds of the rows, or None when all are data."""
        at = self.where().kinds
        return None if at < 0 else self._array(at, "u1")

    @property
    def ranges(self) -> Array | None:
        """How many sequence numbers each row stands for, or None when each is one."""
        at = self.where().ranges
        return None if at < 0 else self._array(at, f"<u{row_width(self.header.span)}").astype(np.uint64)

    def seqs(self) -> Array:
        """Sequence number of each row, uint64."""
        if self._seqs is None and self.is_dense and not self.is_whole:
            return np.arange(self.header.first + self._lo, self.header.first + self._hi, dtype=np.uint64)
        return self._all_seqs()[self._lo : self._hi]

    def times(self) -> Array:
        """Publish time of each row, µs, int64."""
        at = self.where().times
        return np.full(self.count, self.header.time_us, np.int64) if at < 0 else self._array(at, "<i8")

    @property
    def has_times(self) -> bool:
        """Whether rows have times of their own."""
        return bool(self.header.flags & layout.TIMES)

    def keys(self) -> pa.Array | None:
        """Keys as an Arrow binary array (of fixed width where they are), or None."""
        where = self.where()
        return (
            None
            if where.key_bytes < 0
            else self._strings(where.key_offsets, where.key_bytes, self.header.key_bytes)
        )

    def payloads(self) -> pa.Array:
        """Payloads as an Arrow binary array, of fixed width where they all have one."""
        if self.header.flags & layout.GHOST:
            raise MalformedBatch("a ghost batch states its payload's size and carries none")
        where = self.where()
        return self._strings(where.payload_offsets, where.payload_bytes, self.header.payload_bytes)

    def payload_sizes(self) -> Array:
        """Bytes of each payload, int64."""
        at, n = self.where().payload_offsets, self.header.count
        if at < 0:
            return np.full(self.count, self.header.payload_bytes // n if n else 0, np.int64)
        return np.diff(self._offsets(at).astype(np.int64))

    def payload(self, i: int) -> bytes:
        """One payload, for whoever wants a few; `payloads()` has them all as a column."""
        header, n = self.header, self.header.count
        if header.flags & layout.PAYLOADS_FIXED and not header.flags & layout.GHOST and 0 <= i < self.count:
            width = header.payload_bytes // n
            at = header.size - padded(header.payload_bytes) + (self._lo + i) * width  # the last column
            return bytes(self._data[at : at + width])
        return bytes(self.payloads()[i].as_py())

    def key(self, i: int) -> bytes:
        keys = self.keys()
        return b"" if keys is None else bytes(keys[i].as_py())

    def kind(self, i: int) -> Kind:
        kinds = self.kinds
        return Kind.DATA if kinds is None else Kind(int(kinds[i]))

    def attributes(self) -> dict[str, list[pa.Array]]:
        """Attribute columns by name; an absent value is null. A name has several arrays if its types differ
        in this batch."""
        columns = self._all_attributes()
        if self.is_whole:
            return columns
        return {
            name: [array.slice(self._lo, self.count) for array in arrays] for name, arrays in columns.items()
        }

    def attribute_row(self, i: int) -> dict[str, Value]:
        """One event's attributes; for printing and tests."""
        row: dict[str, Value] = {}
        for name, arrays in self._all_attributes().items():
            for array in arrays:
                value = array[self._lo + i].as_py()
                if value is not None:
                    row[name] = value
        return row

    @property
    def source_names(self) -> list[str]:
        if self._sources is None:
            at = self.where().sources
            self._sources = [] if at < 0 else decode_sources(self._data[at : at + self.header.source_bytes])
        return self._sources

    def source_codes(self) -> Array | None:
        """Index into `source_names` of each row, or None when all are of the first."""
        at = self.where().source_codes
        return None if at < 0 else self._array(at, "<u2")

    @property
    def positions_dense(self) -> bool:
        return bool(self.header.flags & layout.POSITIONS_DENSE)

    @property
    def position(self) -> int:
        """The sequence of row 0 at the source, where positions are dense."""
        return self.header.position + self._lo

    def positions(self) -> tuple[Array, Array] | None:
        """(sequences, indexes) at the source, or None."""
        flags, where = self.header.flags, self.where()
        if flags & layout.POSITIONS_DENSE:
            start = np.uint64(self.header.position + self._lo)
            return start + np.arange(self.count, dtype=np.uint64), np.zeros(self.count, np.uint32)
        if flags & layout.POSITIONS:
            return self._array(where.position_sequences, "<u8"), self._array(where.position_indexes, "<u4")
        return None

    # --- parts of it --------------------------------------------------------------------------------

    def slice(self, i: int, j: int) -> "Batch":
        """Rows i..j as a view; it covers the sequence numbers from after row i-1 to row j-1 (or the end)."""
        if not 0 <= i <= j <= self.count:
            raise MalformedBatch(f"rows {i}..{j} of a batch of {self.count}")
        part = Batch(self._data, self.header, self._lo + i, self._lo + j)
        part._columns, part._attributes, part._seqs = self._columns, self._attributes, self._seqs
        part._sources = self._sources
        return part

    def take(self, rows: Any, *, renumber: bool = False) -> "Batch":
        """The chosen rows (a mask or rising indices); the same sequence numbers stay covered, unless they are
        to be numbered anew, one by one."""
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        rows = rows.astype(np.int64)
        if len(rows) == self.count:
            return self
        draft = self.draft()

        def pick(column: Array | None) -> Array | None:
            return None if column is None else column[rows]

        def pick_strings(column: pa.Array) -> Strings:
            return strings(column.take(pa.array(rows)), "column")

        keys, positions = self.keys(), self.positions()
        ghost = draft.ghost
        return from_draft(
            draft._replace(
                payloads=uniform(self._ghost_width(), len(rows)) if ghost else pick_strings(self.payloads()),
                times=pick(draft.times),
                kinds=pick(draft.kinds),
                span=None if renumber else draft.span,
                seqs=None if renumber else self.seqs()[rows],
                ranges=pick(draft.ranges),
                keys=None if keys is None else pick_strings(keys),
                attributes={
                    k: [a.take(pa.array(rows)) for a in v] for k, v in (draft.attributes or {}).items()
                },
                source_codes=pick(draft.source_codes),
                position=None,
                positions=None if positions is None else (positions[0][rows], positions[1][rows]),
            )
        )

    def draft(self) -> Draft:
        """The columns, to make another batch of."""
        dense = not self.header.flags & layout.SEQS
        ghost = bool(self.header.flags & layout.GHOST)
        keys, positions = self.keys(), self.positions()
        kinds = self.kinds
        if kinds is not None and not kinds.any():
            # none of the rows that this view is of; then none is a tombstone, and has a range, either
            kinds = None
        return Draft(
            stream=self.stream,
            payloads=uniform(self._ghost_width(), self.count)
            if ghost
            else strings(self.payloads(), "payloads"),
            first=self.first,
            span=self.span,
            time_us=self.time_us,
            times=self.times() if self.has_times else None,
            kinds=kinds,
            seqs=None if dense else self.seqs(),
            ranges=None if kinds is None else self.ranges,
            keys=None if keys is None else strings(keys, "keys"),
            attributes=self.attributes(),
            sources=self.source_names,
            source_codes=self.source_codes(),
            position=self.position if self.positions_dense else None,
            positions=None if self.positions_dense else positions,
            ghost=ghost,
        )

    def encode(self) -> memoryview:
        """The bytes: those it came from if it is whole, else new ones for these rows alone."""
        return self._data if self.is_whole else memoryview(encode(self.draft()))

    def to_arrow(self) -> pa.RecordBatch:
        """seq, kind, key, time, payload, then every attribute under its own name (a second type under
        `name:type`)."""
        keys, kinds = self.keys(), self.kinds
        columns: dict[str, pa.Array] = {
            "seq": pa.array(self.seqs()),
            "kind": pa.array(np.zeros(self.count, np.uint8) if kinds is None else kinds),
            "key": pa.nulls(self.count, pa.binary()) if keys is None else keys.cast(pa.binary()),
            "time": pa.Array.from_buffers(
                pa.timestamp("us", "UTC"),
                self.count,
                [None, pa.py_buffer(np.ascontiguousarray(self.times()))],
            ),
            "payload": self.payloads().cast(pa.binary()),
        }
        for name, arrays in self.attributes().items():
            for array in arrays:
                columns[name if name not in columns else f"{name}:{array.type}"] = array
        return pa.RecordBatch.from_pydict(columns)

    # --- inside -------------------------------------------------------------------------------------

    def where(self) -> Columns:
        """Where the columns stand; for those who read the bytes themselves."""
        if self._columns is None:
            self._columns = locate(self.header)
        return self._columns

    def _array(self, at: int, dtype: str) -> Array:
        return np.frombuffer(self._data, dtype, self.header.count, at)[self._lo : self._hi]

    def _offsets(self, at: int) -> Array:
        return np.frombuffer(self._data, "<u4", self.header.count + 1, at)[self._lo : self._hi + 1]

    def _all_seqs(self) -> Array:
        if self._seqs is None:
            header, at = self.header, self.where().seqs
            if at < 0:
                self._seqs = np.arange(header.first, header.first + header.count, dtype=np.uint64)
            else:
                offsets = np.frombuffer(self._data, f"<u{row_width(header.span)}", header.count, at)
                self._seqs = offsets.astype(np.uint64)
                self._seqs += np.uint64(header.first)
        return self._seqs

    def _all_attributes(self) -> dict[str, list[pa.Array]]:
        if self._attributes is None:
            at = self.where().attributes
            section = self._data[at : at + self.header.attribute_bytes] if at >= 0 else None
            self._attributes = {} if section is None else attribute_section.decode(section, self.header.count)
        return self._attributes

    def _ghost_width(self) -> int:
        return self.header.payload_bytes // self.header.count if self.header.count else 0

    def _strings(self, offsets_at: int, bytes_at: int, total: int) -> pa.Array:
        n = self.header.count
        data = pa.py_buffer(self._data[bytes_at : bytes_at + total])
        if offsets_at < 0:
            kind = pa.binary(total // n if n else 0)
            return pa.Array.from_buffers(kind, n, [None, data]).slice(self._lo, self.count)
        offsets = pa.py_buffer(self._data[offsets_at : offsets_at + 4 * (n + 1)])
        return pa.Array.from_buffers(pa.binary(), n, [None, offsets, data]).slice(self._lo, self.count)


def from_draft(draft: Draft) -> Batch:
    """A batch from columns prepared by hand (`Batch.build` prepares them for you)."""
    data = encode(draft)
    batch = Batch(memoryview(data), peek(data), 0, draft.payloads.count)
    if draft.kinds is not None or draft.seqs is not None or draft.ranges is not None:
        locate(batch.header)
        verify_rows(batch)
    return batch


def decode_all(data: Buffer, *, limit: int = FRAME_LIMIT, verify: bool = True) -> Iterator[Batch]:
    """Batches laid end to end: a segment, or what one frame carries."""
    view = memoryview(data)
    while view:
        batch = Batch.decode(view, limit=limit, verify=verify)
        yield batch
        view = view[batch.size :]
