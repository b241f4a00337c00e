"""Write batches into columns: `sequence 8 · count 4 · entries`, and an entry is `tag 1 [· column family] ·
key [· value]`.

Numbers inside are varints of at most 32 bits, and keys and values have their length before them. Batches of
one entry, of which a log may be full, are decoded all together; batches of entries of one shape, by strides,
together with those like them; any other, by a walk over its entries.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from qanat.capture.errors import MalformedLog
from qanat.capture.rocksdb.decode_records import Bytes, Ints
from qanat.capture.updates import Op

BATCH_HEADER_BYTES = 12
_STRIDED = 4
"""Batches of fewer entries are walked: the strides would cost more than they save."""


class Entries(NamedTuple):
    """One row per entry that took a sequence number; `rows` of them are batch i's. Keys and values are ranges
    of `data`."""

    data: bytes
    sequences: npt.NDArray[np.uint64]
    rows: Ints
    tags: Ints
    families: Ints
    key_starts: Ints
    key_ends: Ints
    value_starts: Ints
    value_ends: Ints


class TwoPhase(Exception):
    """A batch has marks of two-phase commit, which `transactions` takes out first."""


class Shape(NamedTuple):
    family: bool
    value: bool
    op: int
    """-1: takes no sequence number."""


_DELETE, _PUT, _MERGE, _RANGE = int(Op.DELETE), int(Op.PUT), int(Op.MERGE), int(Op.DELETE_RANGE)
LOG_DATA, NOOP = 0x3, 0xD
ENTITY, FAMILY_ENTITY = 0x16, 0x17
SHAPES: dict[int, Shape] = {
    0x0: Shape(False, False, _DELETE),
    0x1: Shape(False, True, _PUT),
    0x2: Shape(False, True, _MERGE),
    0x4: Shape(True, False, _DELETE),
    0x5: Shape(True, True, _PUT),
    0x6: Shape(True, True, _MERGE),
    0x7: Shape(False, False, _DELETE),  # a deletion of what was put once
    0x8: Shape(True, False, _DELETE),
    0xE: Shape(True, True, _RANGE),
    0xF: Shape(False, True, _RANGE),
    ENTITY: Shape(False, True, _PUT),
    FAMILY_ENTITY: Shape(True, True, _PUT),
}
MARKS = frozenset((0x9, 0xA, 0xB, 0xC, 0x12, 0x13, 0x15))
_NAMED = {
    0x10: "a value in a blob file",
    0x11: "a value in a blob file",
    0x14: "a deletion with a timestamp",
    0x18: "a put with a time of its own",
    0x19: "a put with a time of its own",
}
_FAMILY = np.zeros(256, bool)
_VALUE = np.zeros(256, bool)
_SIMPLE = np.zeros(256, bool)
OPS = np.zeros(256, np.uint8)
"""By tag."""
for _tag, _shape in SHAPES.items():
    _FAMILY[_tag], _VALUE[_tag], _SIMPLE[_tag], OPS[_tag] = _shape.family, _shape.value, True, _shape.op


def decode(data: bytes, starts: Ints, ends: Ints) -> Entries:
    """The entries of the batches `data[starts[i]:ends[i]]`. Raises `MalformedLog`, and `TwoPhase` where there
    are such marks."""
    if (ends - starts < BATCH_HEADER_BYTES).any():
        raise MalformedLog("a write batch is shorter than its header")
    whole = np.frombuffer(data, np.uint8)
    heads = whole[starts[:, None] + np.arange(BATCH_HEADER_BYTES)]
    sequences = np.ascontiguousarray(heads[:, :8]).view("<u8")[:, 0]
    counts = np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0].astype(np.int64)
    if (counts > (ends - starts - BATCH_HEADER_BYTES) // 2).any():
        raise MalformedLog("a write batch has a count of entries for which it has no room")
    total = int(counts.sum())
    columns = np.full((6, total), -1, np.int64)
    places = np.cumsum(counts) - counts
    left = ~_singles(whole, starts, ends, counts, places, columns)
    for like in _alike(whole, starts, ends, counts, left):
        left[like] = ~_strided(data, whole, starts[like], ends[like], counts[like], places[like], columns)
    for number in np.flatnonzero(left).tolist():
        place, count = int(places[number]), int(counts[number])
        part = columns[:, place : place + count]
        _walked(data, int(starts[number]) + BATCH_HEADER_BYTES, int(ends[number]), part)
    return Entries(data, sequences, counts, *columns)


def _singles(
    whole: Bytes, starts: Ints, ends: Ints, counts: Ints, places: Ints, columns: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Fills in the batches of one plain entry, all at once; which ones these were."""
    done: npt.NDArray[np.bool_] = counts == 1
    chosen = np.flatnonzero(done)
    if not len(chosen):
        return done
    end = ends[chosen]
    tags = whole[starts[chosen] + BATCH_HEADER_BYTES].astype(np.int64)
    at = starts[chosen] + BATCH_HEADER_BYTES + 1
    good = _SIMPLE[tags]
    families, at, good = _varints(whole, at, end, good, _FAMILY[tags])
    lengths, key_starts, good = _varints(whole, at, end, good, None)
    key_ends = key_starts + lengths
    good &= key_ends <= end
    valued = _VALUE[tags]
    lengths, value_starts, good = _varints(whole, np.where(good, key_ends, end), end, good, valued)
    value_ends = np.where(valued, value_starts + lengths, key_ends)
    good &= value_ends == end
    columns[:, places[chosen[good]]] = np.stack(
        [
            tags,
            families,
            key_starts,
            key_ends,
            np.where(valued, value_starts, -1),
            np.where(valued, value_ends, -1),
        ]
    )[:, good]
    done[chosen[~good]] = False
    return done


def _varints(
    whole: Bytes, at: Ints, end: Ints, good: npt.NDArray[np.bool_], where: npt.NDArray[np.bool_] | None
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """A varint at each place (0 and no byte where not `where`): values, places behind them, and which were
    good."""
    there = good if where is None else good & where
    last = len(whole) - 1
    first = whole[np.minimum(at, last)].astype(np.int64)
    good = good & ~(there & (at >= end))
    values = np.where(there, first & 127, 0)
    at = at + there
    more = there & (first >= 128)
    shift = 7
    while more.any() and shift < 35:
        good &= ~(more & (at >= end))
        byte = whole[np.minimum(at, last)].astype(np.int64)
        values += np.where(more, (byte & 127) << shift, 0)
        at = at + more
        more = more & (byte >= 128)
        shift += 7
    return values, at, good & ~more & (values < 1 << 32)


def _alike(
    whole: Bytes, starts: Ints, ends: Ints, counts: Ints, left: npt.NDArray[np.bool_]
) -> Iterator[Ints]:
    """Batches whose entries may all be laid out alike: as many of them, of the same length, and the same two
    bytes first."""
    sizes = (ends - starts - BATCH_HEADER_BYTES) // np.maximum(counts, 1)
    even = left & (counts >= _STRIDED) & (sizes * counts == ends - starts - BATCH_HEADER_BYTES)
    chosen = np.flatnonzero(even)
    first = starts[chosen] + BATCH_HEADER_BYTES
    traits = np.stack([counts[chosen], sizes[chosen], whole[first], whole[first + 1]])
    order = np.lexsort(traits)
    edges = np.flatnonzero(np.diff(traits[:, order]).any(axis=0)) + 1
    return (group for group in np.split(chosen[order], edges) if len(group))


def _strided(
    data: bytes,
    whole: Bytes,
    starts: Ints,
    ends: Ints,
    counts: Ints,
    places: Ints,
    columns: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Fills in those batches of which every entry has the shape and the lengths of the very first; which ones
    these were."""
    at, count = int(starts[0]) + BATCH_HEADER_BYTES, int(counts[0])
    size = (int(ends[0]) - at) // count
    none = np.zeros(len(starts), bool)
    shape = SHAPES.get(data[at])
    if shape is None:
        return none
    first = np.full((6, 1), -1, np.int64)
    try:
        _walked(data, at, at + size, first)
    except MalformedLog:
        return none
    key_start, key_end, value_start = (int(place) - at for place in first[2:5, 0])
    entries = (starts + BATCH_HEADER_BYTES)[:, None] + np.arange(count) * size
    good = np.ones(entries.shape, bool)
    for place in (*range(key_start), *range(key_end, value_start if shape.value else key_end)):
        good &= whole[entries + place] == data[at + place]
    same: npt.NDArray[np.bool_] = np.asarray(good.all(axis=1))
    entries = entries[same].reshape(-1)
    rows = (places[same][:, None] + np.arange(count)).reshape(-1)
    columns[:2, rows] = first[:2]
    filled = 6 if shape.value else 4
    columns[2:filled, rows] = first[2:filled] - at + entries
    return same


def _walked(data: bytes, at: int, end: int, part: npt.NDArray[np.int64]) -> None:
    """Entry by entry."""
    found: list[int] = []
    shapes = SHAPES
    while at < end:
        tag = data[at]
        at += 1
        shape = shapes.get(tag)
        if shape is None:
            at = _uncounted(data, tag, at, end)
            continue
        family = 0
        if shape[0]:
            family, at = varint(data, at, end)
        length = data[at] if at < end else 128
        if length < 128:
            at += 1
        else:
            length, at = varint(data, at, end)
        key_end = at + length
        if shape[1]:
            value = key_end
            length = data[value] if value < end else 128
            if length < 128:
                value += 1
            else:
                length, value = varint(data, value, end)
            found += (tag, family, at, key_end, value, value + length)
            at = value + length
        else:
            found += (tag, family, at, key_end, -1, -1)
            at = key_end
    if at > end:
        raise MalformedLog("an entry of a write batch goes beyond its end")
    if len(found) != part.size:
        raise MalformedLog(
            f"a write batch has {len(found) // 6} entries, and says that it has {part.shape[1]}"
        )
    part[:] = np.array(found, np.int64).reshape(-1, 6).T


def _uncounted(data: bytes, tag: int, at: int, end: int) -> int:
    """Where the entry after one that takes no sequence number begins."""
    if tag == NOOP:
        return at
    if tag == LOG_DATA:  # what an application writes for itself; no part of the database
        length, at = varint(data, at, end)
        return at + length
    if tag in MARKS:
        raise TwoPhase
    raise unknown(tag)


def unknown(tag: int) -> MalformedLog:
    named = _NAMED.get(tag)
    if named is not None:
        return MalformedLog(f"a write batch has {named} in it (tag {tag:#x}), which is not read here")
    return MalformedLog(f"a write batch has an entry of an unknown kind (tag {tag:#x})")


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of at most 32 bits, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32:
                break
            return value, at
    raise MalformedLog("a number in a write batch is cut off or too large")


def entity_columns(value: bytes) -> dict[bytes, bytes]:
    """The wide columns of an entity by name; the default column's name is empty."""
    version, at = varint(value, 0, len(value))
    if version != 1:
        raise MalformedLog(f"a wide-column entity is of version {version}, which is not known here")
    count, at = varint(value, at, len(value))
    sizes: list[tuple[bytes, int]] = []
    for _ in range(count):
        length, at = varint(value, at, len(value))
        name = value[at : at + length]
        size, at = varint(value, at + length, len(value))
        sizes.append((name, size))
    if at + sum(size for _, size in sizes) != len(value):
        raise MalformedLog("the columns of an entity do not fill it")
    columns = {}
    for name, size in sizes:
        columns[name] = value[at : at + size]
        at += size
    return columns
