"""Blocks: 65,536 sequence numbers of one stream, the unit in which deliveries meet the archive.

What was delivered is ranges and what was published is rows. Both are cut at the borders of blocks and packed,
so that Spark shuffles a few large rows and never one per event; a block is then judged as arrays with an
entry per number.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

BITS = 16
SIZE = 1 << BITS
"""Small enough for a dozen arrays of it to stay in a core's cache, large enough that per-block costs
vanish."""
ABSENT, DATA, GC, TOMBSTONE = range(4)
"""What the archive has of a number."""
KIND_CODES = {"data": DATA, "gc": GC, "tombstone": TOMBSTONE}

Array = np.ndarray[Any, Any]
_ROW = np.dtype([("at", "<u2"), ("to", "<u2"), ("kind", "u1"), ("time_us", "<i8")])
_RUN = np.dtype([("at", "<u2"), ("to", "<u2"), ("kind", "u1"), ("time_us", "<i8"), ("high", "<i8")])


def block_of(seq: int) -> int:
    return seq >> BITS


class Cut(NamedTuple):
    """Ranges, cut where blocks begin: piece i is at..to of its block, and comes from range `of`."""

    block: Array
    at: Array
    to: Array
    of: Array


def cut(first: Array, last: Array) -> Cut:
    """Empty ranges (last < first) are left out."""
    here = np.flatnonzero(last >= first)
    first, last = first[here], last[here]
    begin, end = first >> BITS, last >> BITS
    counts = end - begin + 1
    of = np.repeat(np.arange(len(first)), counts)
    block = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + begin[of]
    at = np.maximum(first[of] - (block << BITS), 0)
    to = np.minimum(last[of] - (block << BITS), SIZE - 1)
    return Cut(block, at, to, here[of])


def groups(block: Array) -> Iterator[tuple[int, Array]]:
    """(block, its pieces in the order that they have) for each block."""
    order = np.argsort(block, kind="stable")
    bounds = np.flatnonzero(np.diff(block[order])) + 1
    for part in np.split(order, bounds) if len(order) else ():
        yield int(block[part[0]]), part


# --- the archive's side -----------------------------------------------------------------------------


def pack_rows(at: Array, to: Array, kind: Array, time_us: Array, flags: Array) -> bytes:
    """Rows of the archive in one block; `flags` has a row per filter, a column per row: whether it passes."""
    rows = np.zeros(len(at), _ROW)
    rows["at"], rows["to"], rows["kind"], rows["time_us"] = at, to, kind, time_us
    return rows.tobytes() + np.packbits(flags, axis=1).tobytes()


class Published:
    """What the archive has of one block."""

    def __init__(self, filters: int) -> None:
        self.kind = np.zeros(SIZE, np.uint8)
        self.time_us = np.zeros(SIZE, np.int64)
        self.passes = np.zeros((filters, SIZE), bool)
        self.complete = np.zeros(SIZE, bool)
        """Of which numbers the manifest says that the archive has everything."""

    def add(self, packed: bytes, count: int) -> None:
        rows = np.frombuffer(packed, _ROW, count)
        graves = rows["kind"] == TOMBSTONE
        at = rows["at"][~graves]
        self.kind[at], self.time_us[at] = rows["kind"][~graves], rows["time_us"][~graves]
        if len(self.passes):
            bits = np.frombuffer(packed, np.uint8, offset=count * _ROW.itemsize)
            flags = np.unpackbits(bits.reshape(len(self.passes), -1), axis=1, count=count).astype(bool)
            self.passes[:, at] = flags[:, ~graves]
        if graves.any():
            self.kind[covered(rows["at"][graves], rows["to"][graves])] = TOMBSTONE


# --- the subscribers' side --------------------------------------------------------------------------


class Pieces(NamedTuple):
    """What one recording has of one block, in the order in which it was handed over."""

    at: Array
    to: Array
    kind: Array
    """See `record_format.Entry`."""
    time_us: Array
    high: Array
    """The highest number that had been handed over before."""


def pack_pieces(pieces: Pieces) -> bytes:
    rows = np.zeros(len(pieces.at), _RUN)
    for name, column in zip(Pieces._fields, pieces, strict=True):
        rows[name] = column
    return rows.tobytes()


def unpack_pieces(packed: bytes) -> Pieces:
    rows = np.frombuffer(packed, _RUN)
    return Pieces(
        rows["at"].astype(np.int64), rows["to"].astype(np.int64), rows["kind"], rows["time_us"], rows["high"]
    )


# --- numbers of a block -----------------------------------------------------------------------------


def counted(at: Array, to: Array) -> Array:
    """Of each number in how many of these ranges it is."""
    steps = np.bincount(at, minlength=SIZE + 1)
    steps[: SIZE + 1] -= np.bincount(to.astype(np.int64) + 1, minlength=SIZE + 1)
    return np.cumsum(steps[:SIZE])


def covered(at: Array, to: Array) -> Array:
    return counted(at, to) > 0


def between(block: int, first: int, last: int) -> Array:
    """Which numbers of a block are in first..last."""
    begin = block << BITS
    mask = np.zeros(SIZE, bool)
    mask[max(0, first - begin) : max(0, last + 1 - begin)] = True
    return mask


def ranges_of(mask: Array) -> tuple[Array, Array]:
    """The runs of set flags: where they begin, and where they end (both included)."""
    edges = np.diff(np.concatenate(([0], mask.view(np.int8), [0])))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
