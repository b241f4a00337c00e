"""Blocks of a log file into records: write-ahead logs and manifests are laid out alike.

A file is a row of blocks of 32 KiB. In them lie physical records, `crc32c 4 · length 2 · kind 1 [· log number
4] · payload`, none of which crosses a block's end; a longer logical record is cut into FIRST, MIDDLE… and
LAST. The kinds with a log number are for files that are overwritten from their beginning by a later log: a
record with an earlier number is a leftover of the earlier log, and ends this one.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from qanat.events.checksum import crc32c

BLOCK_BYTES = 32 * 1024
HEADER_BYTES = 7
RECYCLABLE_HEADER_BYTES = 11

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Kind(IntEnum):
    ZERO = 0
    FULL = 1
    FIRST = 2
    MIDDLE = 3
    LAST = 4
    RECYCLABLE_FULL = 5
    RECYCLABLE_LAST = 8
    SET_COMPRESSION = 9
    TIMESTAMP_SIZES = 10
    RECYCLABLE_TIMESTAMP_SIZES = 11
    SAFE_TO_IGNORE = 32
    """A bit that kinds have which a reader may pass over."""
    RECYCLABLE_PREDECESSOR = 34


_WITH_NUMBER = frozenset((5, 6, 7, 8, Kind.RECYCLABLE_TIMESTAMP_SIZES, Kind.RECYCLABLE_PREDECESSOR))
_ZSTD = 7
_FIRST_OTHER = 5
"""Kinds below are those of a file that is written once."""


class Scan(NamedTuple):
    """Whole logical records; record i is `data[starts[i]:ends[i]]`, and what follows it begins at `nexts[i]`
    in the file."""

    data: bytes
    starts: Ints
    ends: Ints
    nexts: Ints
    upto: int
    """File offset at which the next scan must begin."""
    torn: bool
    """What lies at `upto` is the beginning of a record that is not (yet) whole, or leftovers."""
    problem: str
    """Not empty: what lies at `upto` cannot become a record, however long one waits."""
    recyclable: bool
    compressed: bool


class State(NamedTuple):
    """What has been learnt of a file from the records before."""

    offset: int = 0
    recyclable: bool = False
    compressed: bool = False


class _Physical(NamedTuple):
    heads: Ints
    tops: Ints
    upto: int
    torn: bool
    problem: str
    recyclable: bool
    compressed: bool


def masked(crc: int) -> int:
    """A checksum as it is stored: rotated and shifted, so that checksums of data with checksums in them stay
    good."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def scan(chunk: bytes, state: State, number: int) -> Scan:
    """The records in a piece of log file `number` that begins at `state.offset`, where a record ends or the
    file begins."""
    found = _checked(chunk, _physical(chunk, state, number))
    return _assembled(chunk, found, state.offset)


class Head(NamedTuple):
    payload: bytes
    compressed: bool


def first_part(chunk: bytes, number: int) -> Head | None:
    """The payload of the first physical record that begins a logical one, in the first bytes of a file."""
    found = _checked(chunk, _physical(chunk, State(), number))
    if not len(found.heads):
        return None
    at, top = int(found.heads[0]), int(found.tops[0])
    kind = chunk[at + 6]
    header = RECYCLABLE_HEADER_BYTES if kind >= Kind.RECYCLABLE_FULL else HEADER_BYTES
    if kind not in (1, 2, 5, 6):
        return None
    return Head(chunk[at + header : top], found.compressed)


def _physical(chunk: bytes, state: State, number: int) -> _Physical:
    """Where physical records lie: a walk from length to length, with nothing else in it; over records of one
    length, in one step."""
    heads: list[int] = []
    tops: list[int] = []
    size, at, step = len(chunk), 0, 0
    block_end = BLOCK_BYTES - state.offset % BLOCK_BYTES
    recyclable, compressed = state.recyclable, state.compressed
    torn, problem = False, ""
    while True:
        if block_end - at < HEADER_BYTES:
            if block_end > size:
                break
            at = block_end
            block_end += BLOCK_BYTES
            continue
        if at + HEADER_BYTES > size:
            torn = at < size
            break
        kind = chunk[at + 6]
        top = at + HEADER_BYTES + (chunk[at + 4] | chunk[at + 5] << 8)
        if 0 < kind < _FIRST_OTHER and top <= size and top <= block_end:
            if top - at == step and kind == 1:
                count = _alike(chunk, at, min(block_end, size), step)
                top = at + count * step
                heads += range(at, top, step)
                tops += range(at + step, top + step, step)
            else:
                heads.append(at)
                tops.append(top)
                step = top - at
            at = top
            continue
        if kind == 0 and recyclable and block_end - at < RECYCLABLE_HEADER_BYTES:
            at = min(block_end, size)  # there was no room for a header with a log number
            continue
        if kind in _WITH_NUMBER:
            top += 4
            if chunk[at + 7 : at + 11] != (number & 0xFFFFFFFF).to_bytes(4, "little"):
                torn = True
                break
            recyclable = True
        if kind == 0 or top > min(block_end, size):
            torn = True
            if top > block_end and block_end < size and not recyclable:
                problem = "a record is longer than its block"
            break
        if Kind.RECYCLABLE_FULL <= kind <= Kind.RECYCLABLE_LAST:
            heads.append(at)
            tops.append(top)
        else:
            stored = int.from_bytes(chunk[at : at + 4], "little")
            whole = masked(crc32c(chunk[at + 6 : top])) == stored
            problem = _meta(kind, chunk[at + 7 : top]) if whole else ""
            if problem or not whole:
                torn = True
                break
            compressed = compressed or (kind == Kind.SET_COMPRESSION and chunk[at + 7] == _ZSTD)
        at = top
    ints = np.array(heads, np.int64), np.array(tops, np.int64)
    return _Physical(*ints, min(at, size), torn, problem, recyclable, compressed)


def _alike(chunk: bytes, at: int, end: int, step: int) -> int:
    """How many records, from this one on, are full ones of this length."""
    end = at + (end - at) // step * step
    found = end
    for place in (4, 5, 6):  # length, length, kind
        column = chunk[at + place : end : step]
        found = min(found, len(column) - len(column.lstrip(column[:1])))
    return found


def _meta(kind: int, payload: bytes) -> str:
    if kind & Kind.SAFE_TO_IGNORE:
        return ""
    if kind == Kind.SET_COMPRESSION:
        named = int.from_bytes(payload[:4], "little") if len(payload) >= 4 else -1
        return (
            "" if named in (0, _ZSTD) else f"the log is compressed by method {named}, which is not known here"
        )
    if kind in (Kind.TIMESTAMP_SIZES, Kind.RECYCLABLE_TIMESTAMP_SIZES):
        return "its keys have user-defined timestamps, which are not read here"
    return f"a record is of kind {kind}, which is not known here"


def _checked(chunk: bytes, found: _Physical) -> _Physical:
    """Cut before the first record whose checksum is wrong."""
    if not len(found.heads):
        return found
    view = memoryview(chunk)
    bodies = map(view.__getitem__, map(slice, (found.heads + 6).tolist(), found.tops.tolist()))
    sums = np.fromiter(map(crc32c, bodies), np.uint32, len(found.heads))
    kept = ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)
    whole = np.frombuffer(chunk, np.uint8)
    stored = whole[found.heads[:, None] + np.arange(4)].view("<u4")[:, 0]
    wrong = np.flatnonzero(kept != stored)
    if not len(wrong):
        return found
    row = int(wrong[0])
    at, top = int(found.heads[row]), int(found.tops[row])
    problem = ""
    # Files grow at their end: whoever finds bytes behind a record finds it whole, unless the bytes are an
    # earlier log's or not written yet.
    if not found.recyclable and chunk[top:].strip(b"\0"):
        problem = "a record's checksum is wrong"
    return found._replace(heads=found.heads[:row], tops=found.tops[:row], upto=at, torn=True, problem=problem)


def _assembled(chunk: bytes, found: _Physical, offset: int) -> Scan:
    """Logical records, each in one piece: what lies between the parts of a record is taken out, and all else
    stays where it lies."""
    heads, tops = found.heads, found.tops
    kinds = np.frombuffer(chunk, np.uint8)[heads + 6] if len(heads) else np.zeros(0, np.uint8)
    recyclable = kinds >= Kind.RECYCLABLE_FULL
    starts = heads + np.where(recyclable, RECYCLABLE_HEADER_BYTES, HEADER_BYTES)
    kinds = np.where(recyclable, kinds - Kind.LAST, kinds)
    inner = kinds >= Kind.MIDDLE
    unfinished = (kinds == Kind.FIRST) | (kinds == Kind.MIDDLE)
    if not (inner.any() or unfinished.any()):
        return _scan(chunk, starts, tops, tops, found, offset)
    due = np.concatenate([[False], unfinished])
    """Whether a record is to be gone on with."""
    wrong = np.flatnonzero(inner != due[:-1])
    count = int(wrong[0]) if len(wrong) else len(kinds)
    if due[count]:  # a record's parts may lie in blocks that are yet to come
        count = int(np.flatnonzero(~inner[:count])[-1])
    if count < len(kinds):
        problem = "the parts of a record are out of order" if len(wrong) else found.problem
        found = found._replace(upto=int(heads[count]), torn=True, problem=problem)
    starts, tops, inner, unfinished = starts[:count], tops[:count], inner[:count], unfinished[:count]
    cuts = np.flatnonzero(inner)
    if not len(cuts):
        return _scan(chunk, starts, tops, tops, found, offset)
    ends, begins = tops[cuts - 1], starts[cuts]
    view = memoryview(chunk)
    kept = map(slice, [0, *begins.tolist()], [*ends.tolist(), int(tops[-1])])
    out = np.zeros(count, np.int64)
    out[cuts] = begins - ends
    shift = np.cumsum(out)
    starts, nexts = (starts - shift)[~inner], tops[~unfinished]
    return _scan(
        b"".join(map(view.__getitem__, kept)), starts, (tops - shift)[~unfinished], nexts, found, offset
    )


def _scan(data: bytes, starts: Ints, ends: Ints, nexts: Ints, found: _Physical, offset: int) -> Scan:
    return Scan(
        data,
        starts,
        ends,
        nexts + offset,
        found.upto + offset,
        found.torn,
        found.problem,
        found.recyclable,
        found.compressed,
    )
