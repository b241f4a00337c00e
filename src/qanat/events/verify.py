"""The checks behind `Batch.decode`: whoever makes a batch may make its checksums right as well."""

from typing import TYPE_CHECKING

import numpy as np

from qanat.events import attributes, layout
from qanat.events.checksum import crc32c
from qanat.events.encode import decode_sources
from qanat.events.errors import MalformedBatch
from qanat.events.layout import HEADER_BYTES, Kind, padded

if TYPE_CHECKING:
    from qanat.events.batch import Batch

_DENSE = layout.POSITIONS_DENSE
_ROWS_AT_ONCE = 1 << 16


def verify_body(batch: "Batch") -> None:
    """Everything that a header cannot promise: the body's checksum, and that each column is what it must
    be."""
    header = batch.header
    flags = header.flags
    if flags & ~_DENSE == layout.PAYLOADS_FIXED and not header.key_bytes and not header.attribute_bytes:
        # Payloads of one width and dense positions: what a client's publishes are. The sizes alone say where
        # all is.
        size = HEADER_BYTES + padded(header.source_bytes) + padded(header.payload_bytes)
        simple = size == header.size and header.count == header.span and header.count
        if simple and not header.payload_bytes % header.count and (header.source_bytes or not flags & _DENSE):
            body = batch.encode()[HEADER_BYTES:]
            _verify_crc(header, body)
            if header.source_bytes and len(decode_sources(body[: header.source_bytes])) > 1:
                raise MalformedBatch("several sources without a code per row")
            return
    where = batch.where()
    _verify_crc(header, batch.encode()[HEADER_BYTES:])
    if where.key_offsets >= 0:
        _verify_offsets(batch, where.key_offsets, header.key_bytes, "key")
    if where.payload_offsets >= 0:
        _verify_offsets(batch, where.payload_offsets, header.payload_bytes, "payload")
    if header.flags & (layout.SEQS | layout.KINDS):
        verify_rows(batch)
    if header.source_bytes:
        _verify_sources(batch)
    if header.attribute_bytes:
        batch.attributes()


def check_given(batch: "Batch") -> None:
    """Refuses a batch without its payloads, and one that claims more than its bytes are worth: asked of what
    comes from publishers, whose every reader would pay for it."""
    header = batch.header
    if header.flags & layout.GHOST:
        raise MalformedBatch("a batch without its payloads: they are for simulations; publish the payloads")
    cells = int(not header.payload_bytes) + bool(header.flags & layout.KEYS and not header.key_bytes)
    if header.attribute_bytes:
        at = batch.where().attributes
        cells += attributes.constants(batch.encode()[at : at + header.attribute_bytes])
    if cells * header.count > layout.CELLS_PER_BYTE * header.size:
        raise MalformedBatch(
            f"{header.count} rows of {cells} columns that are the same in all of them, in {header.size}"
            f" bytes: at most {layout.CELLS_PER_BYTE} values are left out for each byte of a batch; write"
            " them out, or publish fewer rows at once"
        )


def _verify_crc(header: layout.Header, body: memoryview) -> None:
    if crc32c(body) != header.body_crc:
        raise MalformedBatch("the body's CRC32C does not match: the bytes were damaged")


def _verify_offsets(batch: "Batch", at: int, total: int, what: str) -> None:
    offsets = np.frombuffer(batch.encode(), "<u4", batch.header.count + 1, at)
    if offsets[0] or int(offsets[-1]) != total or (offsets[1:] < offsets[:-1]).any():
        raise MalformedBatch(f"the {what} offsets do not rise from 0 to {total}")


def _verify_sources(batch: "Batch") -> None:
    names = batch.source_names
    if batch.header.flags & layout.SOURCE_CODES:
        codes = batch.source_codes()
        if codes is not None and len(codes) and int(codes.max()) >= len(names):
            raise MalformedBatch(f"a row is of source {int(codes.max())}, but there are {len(names)}")
    elif len(names) > 1:
        raise MalformedBatch("several sources without a code per row")


def verify_rows(batch: "Batch") -> None:
    """Rows are in order and disjoint, and only tombstones stand for more than one event.

    A part at a time: what is computed of all rows at once would be many times as large as what came.
    """
    batch.seqs()  # made once, for all parts
    before, n = batch.header.first - 1, batch.count
    for i in range(0, n, _ROWS_AT_ONCE):
        part = batch if n <= _ROWS_AT_ONCE else batch.slice(i, min(i + _ROWS_AT_ONCE, n))
        before = _verify_part(part, before)
    if before > batch.last:
        raise MalformedBatch("rows lie outside what the header says")


def _verify_part(part: "Batch", before: int) -> int:
    """Returns the last row's number, behind which the next part's rows stand."""
    seqs, kinds, ranges = part.seqs(), part.kinds, part.ranges
    graves = np.zeros(len(seqs), bool) if kinds is None else kinds == Kind.TOMBSTONE
    if kinds is not None and int(kinds.max()) > Kind.TOMBSTONE:
        raise MalformedBatch(f"unknown kind {int(kinds.max())}")
    wide = np.ones(len(seqs), np.uint64) if ranges is None else ranges
    starts = seqs - wide + np.uint64(1)
    if not wide.all() or (wide[~graves] != 1).any() or (wide[graves] > seqs[graves]).any():
        raise MalformedBatch(
            "a tombstone's range is at least 1 and within the stream, and only tombstones have one"
        )
    if int(starts[0]) <= before or (starts[1:] <= seqs[:-1]).any():
        raise MalformedBatch("rows are not in order, overlap, or lie outside what the header says")
    return int(seqs[-1])
