"""Reading delivery records back, as columns: no loop over events, nor over batches whose numbers follow each
other."""

import os
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from qanat.client.record_format import (
    ENTRY,
    HEAD,
    HEADING_LIMIT,
    MAGIC,
    UNIT,
    VERSION,
    Array,
    CorruptRecord,
    Entry,
    Heading,
    checksums,
    padded,
)
from qanat.events.checksum import crc32c

KINDS = tuple(kind.name.lower() for kind in Entry)


class Runs(NamedTuple):
    """What was handed over, in that order: runs of numbers that follow each other, each of one kind and one
    moment."""

    time_us: Array
    kind: Array
    """See `Entry`."""
    first: Array
    last: Array

    def arrow(self) -> pa.Table:
        """time, kind, first, last."""
        kinds = pa.DictionaryArray.from_arrays(pa.array(self.kind, pa.int8()), pa.array(KINDS))
        return pa.table(
            {
                "time": pa.array(self.time_us, pa.timestamp("us", "UTC")),
                "kind": kinds,
                "first": pa.array(self.first),
                "last": pa.array(self.last),
            }
        )


class Recorded(NamedTuple):
    """One file of a recording."""

    heading: Heading
    runs: Runs
    torn_bytes: int
    """What a kill or a power cut left of the last write; cut off."""


def read_record(path: str | os.PathLike[str]) -> Recorded | None:
    """A file of a recording; None if its writer was killed before its heading was whole."""
    return decode_record(Path(path).read_bytes(), str(path))


def decode_record(data: bytes, name: str = "the record") -> Recorded | None:
    heading, size = _heading(data, name)
    if heading is None:
        return None
    units = np.frombuffer(data, ENTRY, (len(data) - size) // UNIT, size)
    at = _entries(units)
    entries = units[at]
    good = _check(entries, data, size + at * UNIT)
    whole = _whole(data, size + at * UNIT, good, entries["width"] > 0, name)
    at, entries = at[:whole], entries[:whole]
    ends = size + at * UNIT + UNIT + _rows_bytes(entries)
    end = int(ends[-1]) if whole else size
    return Recorded(heading, _runs(entries, data, size + at * UNIT + UNIT), len(data) - end)


def _heading(data: bytes, name: str) -> tuple[Heading | None, int]:
    if len(data) < HEAD.size:
        return None, 0
    magic, crc, size = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise CorruptRecord(f"{name} is no delivery record: it begins with {magic!r}")
    if size % UNIT or not UNIT <= size <= HEADING_LIMIT:
        raise CorruptRecord(f"{name} is damaged: its heading has {size} bytes")
    if len(data) < size:
        return None, 0
    if crc32c(memoryview(data)[8:size]) != crc:
        raise CorruptRecord(f"{name} is damaged: its heading does not match its checksum")
    heading = msgspec.json.decode(data[HEAD.size : size], type=Heading)
    if heading.version != VERSION:
        raise CorruptRecord(f"{name} is a record of version {heading.version}; this is version {VERSION}")
    return heading, size


def _rows_bytes(entries: Array) -> Array:
    """Bytes of the steps behind each entry, with their padding."""
    sizes = (entries["count"].astype(np.int64) - 1) * entries["width"]
    return np.where(entries["width"] > 0, (sizes + UNIT - 1) // UNIT * UNIT, 0)


def _entries(units: Array) -> Array:
    """Which units are entries: not those that hold the steps of the one before. One look per filtered
    batch."""
    is_entry = np.ones(len(units), bool)
    candidates = np.flatnonzero(units["width"]).tolist()
    i = 0
    while i < len(candidates):
        at = candidates[i]
        unit = units[at]
        after = at + 1 + padded((int(unit["count"]) - 1) * int(unit["width"])) // UNIT
        is_entry[at + 1 : after] = False
        i = bisect_left(candidates, max(after, at + 1), i + 1)
    return np.flatnonzero(is_entry)


def _check(entries: Array, data: bytes, offsets: Array) -> Array:
    """Per entry: whether it is what was written, with all its steps."""
    sums = checksums(entries)
    wide = np.flatnonzero(entries["width"])
    begins, sizes = offsets[wide] + UNIT, _rows_bytes(entries[wide])
    missing = np.zeros(len(entries), bool)
    missing[wide] = begins + sizes > len(data)
    view = memoryview(data)
    for i, begin, size in zip(wide.tolist(), begins.tolist(), sizes.tolist(), strict=True):
        if not missing[i]:
            sums[i] = crc32c(view[begin : begin + size], int(sums[i]))
    return np.asarray((sums == entries["crc"]) & ~missing)


def _whole(data: bytes, offsets: Array, good: Array, stepped: Array, name: str) -> int:
    """How many entries there are before the torn tail: a last entry whose steps are not all there, then
    zeros."""
    if good.all():
        return len(good)
    bad = int(np.argmin(good))
    offset = int(offsets[bad])
    rest = offset if not stepped[bad] else int(offsets[bad + 1]) if bad + 1 < len(offsets) else len(data)
    if not any(memoryview(data)[rest:]):
        return bad
    raise CorruptRecord(f"{name} is damaged at byte {offset}: what follows cannot be trusted")


def _runs(entries: Array, data: bytes, rows_at: Array) -> Runs:
    """Entries with steps become as many runs as they have gaps, and one more."""
    counts = entries["count"].astype(np.int64)
    firsts = entries["first"].astype(np.int64)
    lasts = firsts + counts - 1
    wide = np.flatnonzero(entries["width"])
    if not len(wide):
        return Runs(entries["time_us"].copy(), entries["kind"].copy(), firsts, lasts)
    steps, owner = _steps(entries, data, rows_at, wide)
    totals = np.cumsum(steps)
    begins = np.concatenate(([0], np.cumsum(counts[wide] - 1)))
    before = np.concatenate(([0], totals))[begins[:-1]]
    seqs = firsts[owner] + totals - np.repeat(before, counts[wide] - 1)
    lasts[wide] = seqs[begins[1:] - 1]
    gaps = np.flatnonzero(steps != 1)
    every = np.arange(len(entries))
    # In front of each gap a run ends, behind it one begins; both sorts are stable, so runs stay in their
    # order.
    of = np.concatenate((every, owner[gaps]))
    first_order = np.argsort(of, kind="stable")
    last_order = np.argsort(np.concatenate((owner[gaps], every)), kind="stable")
    of = of[first_order]
    return Runs(
        entries["time_us"][of],
        entries["kind"][of],
        np.concatenate((firsts, seqs[gaps]))[first_order],
        np.concatenate((seqs[gaps] - steps[gaps], lasts))[last_order],
    )


def _steps(entries: Array, data: bytes, rows_at: Array, wide: Array) -> tuple[Array, Array]:
    """All steps of all entries that have any, and for each of them whose it is."""
    counts = entries["count"][wide].astype(np.int64) - 1
    widths = np.repeat(entries["width"][wide], counts)
    places = np.cumsum(counts) - counts  # where each entry's steps begin among all
    within = np.arange(len(widths)) - np.repeat(places, counts)
    offsets = np.repeat(rows_at[wide], counts) + within * widths
    steps = np.empty(len(widths), np.int64)
    for width in (1, 2, 4, 8):
        mine = widths == width
        if mine.any():
            column = np.frombuffer(data, f"<u{width}", len(data) // width)  # all begins at multiples of 32
            steps[mine] = column[offsets[mine] // width]
    return steps, np.repeat(wide, counts)
