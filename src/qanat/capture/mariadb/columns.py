"""Events of rows, held as bytes until there are many, and then made into runs of columns."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb.decode_rows import Images
from qanat.capture.mariadb.versions import Version
from qanat.capture.updates import Op, Run

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class RowEvents:
    """Parallel lists, an element for each event; and for each transaction where its events end."""

    versions: list[Version] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    images: list[bytes | memoryview] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    gtids: list[str] = field(default_factory=list)
    times_s: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    """How many rows of the transaction came before these events."""

    def __len__(self) -> int:
        return len(self.ops)

    def add(self, version: Version, op: Op, images: bytes | memoryview) -> None:
        self.versions.append(version)
        self.ops.append(op)
        self.images.append(images)

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
        del self.versions[count:], self.ops[count:], self.images[count:]

    def take(self, count: int) -> "RowEvents":
        """The first events, with all transactions that are closed; what is left is of an open one."""
        taken = RowEvents(
            self.versions[:count], self.ops[:count], self.images[:count],
            self.ends, self.sequences, self.gtids, self.times_s, self.given,
        )  # fmt: skip
        del self.versions[:count], self.ops[:count], self.images[:count]
        self.ends, self.sequences, self.gtids, self.times_s, self.given = [], [], [], [], []
        return taken


def to_runs(rows: RowEvents, database: str, *, zero_dates_null: bool) -> tuple[list[Run], int]:
    """Runs in the order of the log, and the index of the last row in its transaction (-1: there is no row).

    All rows of a version of a table are decoded together, however its events are mixed with those of others; runs are slices of that.
    """
    if not rows.ops:
        return [], -1
    ops = np.fromiter(rows.ops, np.uint8, len(rows))
    groups: dict[Version, list[int]] = {}
    for at, version in enumerate(rows.versions):
        groups.setdefault(version, []).append(at)
    counts = np.zeros(len(rows), np.int64)
    located: dict[Version, tuple[npt.NDArray[np.int64], Images]] = {}
    for version, members in groups.items():
        places = np.array(members)
        images = version.layout.locate([rows.images[event] for event in members])
        located[version] = places, images
        updated = ops[places] == Op.UPDATE
        if (images.counts[updated] & 1).any():
            raise MalformedLog(f"an update of {version.table.path} has an image before without one after")
        counts[places] = np.where(
            ops[places] == Op.TRUNCATE, 1, np.where(updated, images.counts >> 1, images.counts)
        )
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
    last = int(firsts[-1] + counts[-1] - 1)
    if len(located) == 1:
        return [run for run in whole.values() if len(run)], last
    return _in_order(rows.versions, counts, whole), last


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

    def run(self, version: Version, at: Ints, images: Images) -> Run:
        """All rows of the events `at`, which are of one version."""
        counts = self.counts[at]
        total = int(counts.sum())
        ops = np.repeat(self.ops[at], counts)
        transaction = np.repeat(self.transaction[at], counts)
        inside = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        # Which images are before and which after: all of a deletion, all of an insertion, by turns in an update.
        kinds = np.repeat(self.ops[at], images.counts)
        place = np.arange(len(kinds)) - np.repeat(np.cumsum(images.counts) - images.counts, images.counts)
        afterwards = np.where(kinds == Op.UPDATE, place & 1 == 1, kinds == Op.INSERT)
        return Run(
            version.table,
            ops,
            np.array(self.rows.sequences, np.uint64)[transaction],
            (np.repeat(self.firsts[at], counts) + inside).astype(np.uint32),
            (np.array(self.rows.times_s, np.int64) * 1_000_000)[transaction],
            pa.DictionaryArray.from_arrays(pa.array(transaction, pa.int32()), self.gtids),
            self._images(version, images, afterwards, (ops == Op.INSERT) | (ops == Op.UPDATE)),
            self._images(version, images, ~afterwards, (ops == Op.DELETE) | (ops == Op.UPDATE)),
        )

    def _images(
        self, version: Version, images: Images, chosen: npt.NDArray[np.bool_], present: npt.NDArray[np.bool_]
    ) -> pa.RecordBatch | None:
        """The chosen images as columns, for the rows that have one; None if none has."""
        if not present.any():
            return None
        starts = images.starts[chosen]
        arrays = version.layout.decode(images.data, starts, zero_dates_null=self.zero_dates_null)
        batch = pa.RecordBatch.from_arrays(arrays, schema=version.table.arrow)
        if present.all():
            return batch
        return batch.take(pa.array(np.cumsum(present) - 1, mask=~present))
