"""Who has what comes next: the archive, the server, or nobody.

| the archive has it | the server has it | then |
|---|---|---|
| yes, with more than `handover_rows` behind it | | the archive |
| yes | no | the archive |
| yes, but little more | yes | the server |
| no | yes | the server |
| no | no | it is lost, up to where one of them goes on |
| no | not yet | it is waited for: a region may be behind the archive |

The question is asked again when the archive's range is read, and when the server says that it has dropped
what was to come: both go on growing at one end and losing at the other meanwhile. What both have is the same,
or a tombstone for it, so the order of answers leaves no gap and no duplicate.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

from qanat.events.batch import Kind
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.layout import EPOCH
from qanat.pipeline.archive.manifest import Manifest, Range
from qanat.pipeline.attribute_maps import RANGE_ATTRIBUTE
from qanat.wire.streams import Seen


class Archive(NamedTuple):
    """Read the archive, up to this number."""

    last: int


class Server(NamedTuple):
    """Subscribe at the server."""


class Wait(NamedTuple):
    """Nobody has it yet: this server is behind the archive, or it was asked for what is still to come."""


class Gone(NamedTuple):
    """Nobody has these."""

    lost: Range


def choose(manifest: Manifest, seen: Seen, at: int, handover_rows: int) -> Archive | Server | Gone | Wait:
    """Who has `at`; `seen` is what the server says of it."""
    kept = seen.first <= at <= seen.readable + 1
    for part in manifest.complete():
        if part.first <= at <= part.last and (not kept or part.last - at + 1 > handover_rows):
            return Archive(part.last)
    if kept:
        return Server()
    if at > seen.readable:
        return Wait()
    begins = [part.first for part in manifest.complete() if part.first > at]
    return Gone(Range(at, min([seen.first, *begins]) - 1))


def earliest(manifest: Manifest, seen: Seen) -> int:
    """The first number that anybody has."""
    return min([seen.first, *(part.first for part in manifest.complete()[:1])])


def since(history: History, manifest: Manifest, seen: Seen, time: datetime) -> int:
    """The first number published at that time or later; `seen` is what the server says of that time.

    Who keeps an event before the one that it names knows; else the archive is looked through.
    """
    if seen.start > seen.first:
        return seen.start
    time_us = (time - EPOCH) // timedelta(microseconds=1)
    for file in manifest.files:
        if file.max_time_us >= time_us and file.first < seen.start:
            with history.storage.open(file.path) as source:
                rows = pq.read_table(source, columns=["seq", "time", "kind", "attributes"], partitioning=None)
            late = (
                rows.filter(pc.greater_equal(pc.cast(rows["time"], "int64"), time_us)).slice(0, 1).to_pylist()
            )
            if late:
                row = late[0]
                wide = (
                    dict(row["attributes"]).get(RANGE_ATTRIBUTE, 1)
                    if row["kind"] == Kind.TOMBSTONE.name.lower()
                    else 1
                )
                return min(int(row["seq"]) - int(wide) + 1, seen.start)
    return seen.start
