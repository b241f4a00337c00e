"""Two-phase commit: a transaction's entries lie in the batch that prepares it, and count where the batch with
its commit mark lies.

`resolve` writes batches anew without marks: prepared entries taken out and kept by the transaction's name,
and put in where it is committed. A commit has then the sequence number that RocksDB gives it, and its entries
the order in which RocksDB replays them.
"""

from typing import NamedTuple

import numpy as np

from qanat.capture.errors import MalformedLog
from qanat.capture.rocksdb.decode_batches import (
    BATCH_HEADER_BYTES,
    LOG_DATA,
    NOOP,
    SHAPES,
    unknown,
    varint,
)
from qanat.capture.rocksdb.decode_records import Ints

PREPARED_BYTES = 64 * 1024 * 1024
"""Prepared entries that are kept in memory; of what goes beyond that, the oldest are read again when they are
committed."""
_BEGIN, _END, _COMMIT, _ROLLBACK, _COMMIT_WITH_TIME = 0x9, 0xA, 0xB, 0xC, 0x15
_BEGINNINGS = tuple(bytes([tag]) for tag in (_BEGIN, 0x12, 0x13))


class Section(NamedTuple):
    rows: int
    entries: bytes


class Resolved(NamedTuple):
    """Batches without marks. If `missing` is not None, the batch after them commits a transaction of that
    name, of which the prepared entries are not known."""

    data: bytes
    starts: Ints
    ends: Ints
    missing: bytes | None


class Prepared:
    """Sections of prepared transactions by name."""

    def __init__(self) -> None:
        self._sections: dict[bytes, Section] = {}
        self._bytes = 0

    def keep(self, name: bytes, section: Section) -> None:
        self.drop(name)
        self._sections[name] = section
        self._bytes += len(section.entries)
        while self._bytes > PREPARED_BYTES and len(self._sections) > 1:
            self.drop(next(iter(self._sections)))

    def drop(self, name: bytes) -> None:
        section = self._sections.pop(name, None)
        if section is not None:
            self._bytes -= len(section.entries)

    def get(self, name: bytes) -> Section | None:
        return self._sections.get(name)


def resolve(data: bytes, starts: Ints, ends: Ints, prepared: Prepared, *, partial: bool = False) -> Resolved:
    """`partial`: commits of transactions that are not known are passed over, for those who look for what
    is prepared alone."""
    pieces: list[bytes] = []
    sizes: list[int] = []
    missing = None
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        batch = _batch(data, start, end, prepared, partial)
        if isinstance(batch, Missing):
            missing = batch.name
            break
        pieces.append(batch)
        sizes.append(len(batch))
    tops = np.cumsum(np.array(sizes, np.int64))
    return Resolved(b"".join(pieces), tops - np.array(sizes, np.int64), tops, missing)


class Missing(NamedTuple):
    name: bytes


class _Walk:
    """One batch on its way to being one without marks."""

    def __init__(self, at: int) -> None:
        self.since = at
        """Where entries begin that have not been taken yet."""
        self.count = 0
        self.pieces: list[bytes] = []
        self.rows = 0
        self.begun = False

    def take(self, data: bytes, upto: int) -> Section:
        section = Section(self.count, data[self.since : upto])
        self.count = 0
        return section

    def put(self, section: Section) -> None:
        self.pieces.append(section.entries)
        self.rows += section.rows


def _batch(data: bytes, start: int, end: int, prepared: Prepared, partial: bool) -> bytes | Missing:
    if end - start < BATCH_HEADER_BYTES:
        raise MalformedLog("a write batch is shorter than its header")
    said = int.from_bytes(data[start + 8 : start + 12], "little")
    at = start + BATCH_HEADER_BYTES
    walk = _Walk(at)
    seen = 0
    changes: list[tuple[bytes, Section | None]] = []
    known: dict[bytes, Section | None] = {}
    while at < end:
        mark, tag = at, data[at]
        at += 1
        shape = SHAPES.get(tag)
        if shape is not None:
            if shape.family:
                _, at = varint(data, at, end)
            for _ in range(1 + shape.value):
                length, at = varint(data, at, end)
                at += length
            walk.count += 1
            seen += 1
        elif tag == LOG_DATA:
            length, at = varint(data, at, end)
            at += length
        elif tag == _BEGIN:
            if walk.begun:
                raise MalformedLog("a transaction is prepared inside of another")
            walk.put(walk.take(data, mark))
            walk.begun, walk.since = True, at
        elif tag in (_END, _COMMIT, _ROLLBACK, _COMMIT_WITH_TIME):
            if tag == _COMMIT_WITH_TIME:
                _, at = _text(data, at, end)
            name, at = _text(data, at, end)
            section = walk.take(data, mark)
            walk.since = at
            if (tag == _END) != walk.begun:
                raise MalformedLog("the marks of a prepared transaction are out of order")
            walk.begun = False
            if tag == _END:
                known[name] = section
            else:
                walk.put(section)
                committed = known[name] if name in known else prepared.get(name)
                if tag != _ROLLBACK:
                    if committed is None and not partial:
                        return Missing(name)
                    walk.put(committed or Section(0, b""))
                known[name] = None
            changes.append((name, known[name]))
        elif tag != NOOP:
            raise _refused(tag)
    if at > end or walk.begun:
        raise MalformedLog("an entry of a write batch goes beyond its end")
    if seen != said:
        raise MalformedLog(f"a write batch has {seen} entries, and says that it has {said}")
    walk.put(walk.take(data, end))
    for name, kept in changes:
        if kept is None:
            prepared.drop(name)
        else:
            prepared.keep(name, kept)
    return data[start : start + 8] + walk.rows.to_bytes(4, "little") + b"".join(walk.pieces)


def is_prepared(batch: bytes) -> bool:
    """Whether a batch holds what counts only once it is committed, as far as its beginning says."""
    return batch[BATCH_HEADER_BYTES:].lstrip(bytes([NOOP]))[:1] in _BEGINNINGS


def rows_of(batch: bytes) -> int:
    """How many entries a batch says that it has; one if it has no room for them."""
    said = int.from_bytes(batch[8:BATCH_HEADER_BYTES], "little")
    return said if said <= (len(batch) - BATCH_HEADER_BYTES) // 2 else 1


def _refused(tag: int) -> MalformedLog:
    if tag in (0x12, 0x13):
        return MalformedLog(
            "a transaction was written before its commit (write-prepared or write-unprepared policy), which"
            " is not read here; open the database with TxnDBWritePolicy::WRITE_COMMITTED"
        )
    return unknown(tag)


def _text(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    length, at = varint(data, at, end)
    if at + length > end:
        raise MalformedLog("a transaction's name goes beyond the end of its batch")
    return data[at : at + length], at + length
