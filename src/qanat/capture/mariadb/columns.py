"""Events of rows, held as bytes until there are many, and then made into runs of columns.

What cannot be decoded costs itself alone: a row with a value that is none, or an event that cannot be taken
apart, is told beside the runs, with its place and its bytes. An event counts as one row then, wherever it is
read, so that the positions behind it are the same for everybody.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb.decode_rows import Images, Layout
from qanat.capture.mariadb.versions import Version
from qanat.capture.updates import Op, Run
from qanat.events.position import Position

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class RowEvents:
    """Parallel lists, an element for each event; and for each transaction where its events end."""

    versions: list[Version] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    images: list[bytes | memoryview] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why an event cannot be read; empty if it can, as far as is known."""
    ends: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    gtids: list[str] = field(default_factory=list)
    times_s: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    """How many rows of the transaction came before these events."""

    def __len__(self) -> int:
        return len(self.ops)

    def add(self, version: Version, op: Op, images: bytes | memoryview, problem: str = "") -> None:
        self.versions.append(version)
        self.ops.append(op)
        self.images.append(images)
        self.problems.append(problem)

    def close(self, sequence: int, gtid: str, time_s: int, given: int) -> None:
        """The events since the last close are of this transaction."""
        if len(self.ops) == (self.ends[-1] if self.ends else 0):
            return
        self.ends.append(len(self.ops))
        self.sequences.append(sequence)
        self.gtids.append(gtid)
        self.times_s.append(time_s)
        self.given.append(given)

    def truncate(self, count: int) -> None:
        del self.versions[count:], self.ops[count:], self.images[count:], self.problems[count:]

    def spoil(self, since: int, problem: str) -> None:
        """What was added since then cannot be read either."""
        self.problems[since:] = [one or problem for one in self.problems[since:]]

    def take(self, count: int) -> "RowEvents":
        """The first events, with all transactions that are closed; what is left is of an open one."""
        taken = RowEvents(
            self.versions[:count], self.ops[:count], self.images[:count], self.problems[:count],
            self.ends, self.sequences, self.gtids, self.times_s, self.given,
        )  # fmt: skip
        del self.versions[:count], self.ops[:count], self.images[:count], self.problems[:count]
        self.ends, self.sequences, self.gtids, self.times_s, self.given = [], [], [], [], []
        return taken


class Decoded(NamedTuple):
    """What events of rows say."""

    runs: list[Run]
    """In the order of the log."""
    last: int
    """The index of the last row in its transaction (-1: there is no row)."""
    unread: list[MalformedLog]
    """What could not be decoded, in its order too."""


def to_runs(rows: RowEvents, database: str, *, zero_dates_null: bool) -> Decoded:
    """All rows of a version of a table are decoded together, however its events are mixed with those of
    others; runs are slices of that."""
    if not rows.ops:
        return Decoded([], -1, [])
    ops = np.fromiter(rows.ops, np.uint8, len(rows))
    groups: dict[Version, list[int]] = {}
    for at, version in enumerate(rows.versions):
        if not rows.problems[at]:
            groups.setdefault(version, []).append(at)
    counts = np.ones(len(rows), np.int64)
    located: dict[Version, tuple[Ints, Images]] = {}
    for version, members in groups.items():
        places, images = _located(rows, ops, version, members)
        located[version] = places, images
        halves = np.where(ops[places] == Op.UPDATE, images.counts >> 1, images.counts)
        counts[places] = np.where(ops[places] == Op.TRUNCATE, 1, halves)
    # The transaction of each event, and how many rows of it came before the event.
    ends = np.array(rows.ends)
    lengths = np.diff(ends, prepend=0)
    transaction = np.repeat(np.arange(len(ends)), lengths)
    before = np.cumsum(counts) - counts
    firsts = before - before[ends - lengths][transaction] + np.array(rows.given)[transaction]
    maker = _Maker(rows, ops, counts, transaction, firsts, pa.array(rows.gtids, pa.string()), zero_dates_null)
    whole = {
        version: maker.run(version, at, images)
        for version, (at, images) in located.items()
        if not database or version.table.database == database
    }
    maker.leave_out(database)
    unread = sorted(maker.unread, key=lambda one: one.position or Position(0))
    last = int(firsts[-1] + counts[-1] - 1)
    if len(located) == 1 and not any(rows.problems):
        return Decoded([run for run in whole.values() if len(run)], last, unread)
    return Decoded(_in_order(rows.versions, maker.kept, whole), last, unread)


def _located(
    rows: RowEvents, ops: npt.NDArray[np.uint8], version: Version, members: list[int]
) -> tuple[Ints, Images]:
    """Where the images of these events are; of those that can be taken apart. It is written down of the
    others that they cannot."""
    places = np.array(members, np.int64)
    try:
        images = version.layout.locate([rows.images[event] for event in members])
        if (images.counts[ops[places] == Op.UPDATE] & 1).any():
            raise MalformedLog(f"an update of {version.table.path} has an image before without one after")
        return places, images
    except MalformedLog as error:
        if len(members) == 1:
            rows.problems[members[0]] = str(error)
    for event in members if len(members) > 1 else ():
        _located(rows, ops, version, [event])
    return _located(rows, ops, version, [event for event in members if not rows.problems[event]])


def _in_order(versions: list[Version], counts: Ints, whole: dict[Version, Run]) -> list[Run]:
    """Slices of the whole runs, one for each stretch of events of the same version."""
    runs: list[Run] = []
    used = dict.fromkeys(whole, 0)
    at = 0
    sizes = counts.tolist()
    while at < len(versions):
        version, size = versions[at], 0
        while at < len(versions) and versions[at] is version:
            size += sizes[at]
            at += 1
        run = whole.get(version)
        if run is not None and size:
            runs.append(run.slice(used[version], used[version] + size))
            used[version] += size
    return runs


@dataclass(slots=True)
class _Maker:
    rows: RowEvents
    ops: npt.NDArray[np.uint8]
    counts: Ints
    transaction: Ints
    firsts: Ints
    gtids: pa.Array
    zero_dates_null: bool
    kept: Ints = field(init=False)
    """How many rows of each event could be decoded."""
    unread: list[MalformedLog] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = np.where(self._problems(), 0, self.counts)

    def _problems(self) -> Bools:
        return np.fromiter(map(bool, self.rows.problems), bool, len(self.rows))

    def run(self, version: Version, at: Ints, images: Images) -> Run:
        """All rows of the events `at`, which are of one version."""
        counts = self.counts[at]
        total = int(counts.sum())
        ops = np.repeat(self.ops[at], counts)
        transaction = np.repeat(self.transaction[at], counts)
        inside = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        # Which images are before and which after: all of a deletion, all of an insertion, by turns in an
        # update.
        kinds = np.repeat(self.ops[at], images.counts)
        place = np.arange(len(kinds)) - np.repeat(np.cumsum(images.counts) - images.counts, images.counts)
        afterwards = np.where(kinds == Op.UPDATE, place & 1 == 1, kinds == Op.INSERT)
        made = Run(
            version.table,
            ops,
            np.array(self.rows.sequences, np.uint64)[transaction],
            (np.repeat(self.firsts[at], counts) + inside).astype(np.uint32),
            (np.array(self.rows.times_s, np.int64) * 1_000_000)[transaction],
            pa.DictionaryArray.from_arrays(pa.array(transaction, pa.int32()), self.gtids),
        )
        has_after, has_before = (
            (ops == Op.INSERT) | (ops == Op.UPDATE),
            (ops == Op.DELETE) | (ops == Op.UPDATE),
        )
        try:
            after = self._images(version, images.data, images.starts[afterwards], has_after)
            before = self._images(version, images.data, images.starts[~afterwards], has_before)
        except MalformedLog:
            good = self._without_unread(version, at, images, made)
            after = self._images(
                version, images.data, images.starts[afterwards][good[has_after]], has_after[good]
            )
            before = self._images(
                version, images.data, images.starts[~afterwards][good[has_before]], has_before[good]
            )
            made = made.take(good)
        return replace(made, after=after, before=before)

    def _images(self, version: Version, data: bytes, starts: Ints, present: Bools) -> pa.RecordBatch | None:
        """The images that begin there as columns, for the rows that have one; None if none has."""
        if not present.any():
            return None
        arrays = version.layout.decode(data, starts, zero_dates_null=self.zero_dates_null)
        batch = pa.RecordBatch.from_arrays(arrays, schema=version.table.arrow)
        if present.all():
            return batch
        return batch.take(pa.array(np.cumsum(present) - 1, mask=~present))

    def _without_unread(self, version: Version, at: Ints, images: Images, run: Run) -> Bools:
        """Which rows can be decoded; the others are told."""
        each = np.where(run.ops == Op.UPDATE, 2, np.where(run.ops == Op.TRUNCATE, 0, 1))
        row_of = np.repeat(np.arange(len(run)), each)
        edges = np.append(images.starts, images.size)
        good = np.ones(len(run), bool)
        for image, why in _undecodable(version.layout, images, self.zero_dates_null):
            row = int(row_of[image])
            if not good[row]:
                continue
            good[row] = False
            first = int(np.searchsorted(row_of, row))
            original = images.data[edges[first] : edges[first + int(each[row])]]
            self._tell(run.position(row), f"a row of {version.table.path}: {why}", original)
        events = np.repeat(at, self.counts[at])
        np.subtract.at(self.kept, events[~good], 1)
        return good

    def leave_out(self, database: str) -> None:
        """Tells of the events that cannot be read, if they are not known to be of another database."""
        for event in np.flatnonzero(self._problems()).tolist():
            table = self.rows.versions[event].table
            if not database or table.database in ("", database):
                sequence = self.rows.sequences[int(self.transaction[event])]
                place = Position(sequence, int(self.firsts[event]))
                self._tell(place, self.rows.problems[event], bytes(self.rows.images[event]))

    def _tell(self, place: Position, why: str, original: bytes) -> None:
        told = f"{why} (to leave it out, read from position {place})"
        self.unread.append(MalformedLog(told, position=place, resume=place, original=original))


def _undecodable(layout: Layout, images: Images, zero_dates_null: bool) -> list[tuple[int, str]]:
    """Images that have a value that is none, with what is wrong; found by halves, since there are few of
    them."""
    found: list[tuple[int, str]] = []
    todo = [(0, len(images.starts))]
    while todo:
        start, stop = todo.pop()
        try:
            layout.decode(images.data, images.starts[start:stop], zero_dates_null=zero_dates_null)
        except MalformedLog as error:
            if stop - start == 1:
                found.append((start, str(error)))
            else:
                middle = (start + stop) // 2
                todo += [(middle, stop), (start, middle)]
    return found
