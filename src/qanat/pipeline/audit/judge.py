"""One block judged: what one recording was given of it, beside what the archive has. NumPy alone; knows
nothing of the protocol.

For a run that covers from..upto, and of the numbers that the archive has completely:

| the archive has | the record has | verdict |
|---|---|---|
| an event that passes the filter, or a GC event | it, once, after all lower numbers | good |
| likewise | a tombstone over it | good if a later GC event explains it: `buried`, decided later |
| likewise | nothing | `gap`; with a filter `not_delivered`; `lost` if the subscriber was told so |
| an event that does not pass | it | `filtered_delivered` |
| a tombstone | an event or a tombstone; with a filter, nothing | good: it was collected before it was archived, or since |
| a tombstone | nothing, without a filter | `gap` or `lost` |
| nothing, or an event of another kind | an event | `not_in_archive` |
| anything | it, when a higher number had been given before | `out_of_order` |
| anything | it, and it again in the same run | `duplicate` |

What a later run of the same subscriber is given again is `repeated`: a subscriber that goes on further back
than it was. That is no violation, since each run is a delivery of its own.
"""  # noqa: E501

from typing import NamedTuple

import numpy as np

from qanat.client.record_format import Entry
from qanat.pipeline.audit import latency
from qanat.pipeline.audit.blocks import (
    ABSENT,
    DATA,
    GC,
    SIZE,
    TOMBSTONE,
    Array,
    Pieces,
    Published,
    between,
    counted,
    covered,
    ranges_of,
)

VIOLATIONS = (
    "gap",
    "not_delivered",
    "lost",
    "duplicate",
    "out_of_order",
    "not_in_archive",
    "filtered_delivered",
)
"""Those that are seen in a block; `unexplained` tombstones come later."""


class Scope(NamedTuple):
    """What one run is answerable for."""

    first: int
    last: int
    filter: int
    """Which of the stream's filters; -1 for none."""


class Verdict(NamedTuple):
    """About one run and one block."""

    delivered: int
    """Events."""
    collected: int
    """Numbers under tombstones instead."""
    repeated: int
    violations: dict[str, tuple[Array, Array, int]]
    """By kind: ranges of numbers in the block (where they begin and end), and how many deliveries are wrong
    or missing."""
    buried: tuple[Array, Array]
    """Ranges of events that the archive has, and for which a tombstone came."""
    buried_us: int
    """When the last of these tombstones came."""
    latencies: Array
    """How many events in each bucket of `latency`."""


def judge(block: int, published: Published, pieces: Pieces, scope: Scope, seen: Array) -> Verdict:
    """`seen`: which numbers earlier runs of this subscriber were given; those of this one are added to it."""
    is_grave = pieces.kind == Entry.TOMBSTONE
    is_data, is_gc = pieces.kind == Entry.DATA, pieces.kind == Entry.GC
    is_event = is_data | is_gc
    data = counted(pieces.at[is_data], pieces.to[is_data])
    gc = counted(pieces.at[is_gc], pieces.to[is_gc]) if is_gc.any() else np.zeros(SIZE, np.int64)
    graves = counted(pieces.at[is_grave], pieces.to[is_grave]) if is_grave.any() else np.zeros(SIZE, np.int64)
    total = data + gc + graves
    given = total > 0
    known = published.complete
    kind = published.kind
    filtered = scope.filter >= 0
    passing = published.passes[scope.filter] if filtered else kind == DATA
    wanted = (kind == GC) | ((kind == DATA) & passing)
    if not filtered:
        wanted |= kind == TOMBSTONE
    missing = wanted & ~given & known & between(block, scope.first, scope.last)
    found: dict[str, tuple[Array, Array, int]] = {}

    def blame(name: str, mask: Array, count: int | None = None) -> None:
        if mask.any():
            found[name] = (*ranges_of(mask), int(np.count_nonzero(mask)) if count is None else count)

    is_lost = pieces.kind == Entry.LOST
    if missing.any():
        told = covered(pieces.at[is_lost], pieces.to[is_lost])
        blame("lost", missing & told)
        blame("not_delivered" if filtered else "gap", missing & ~told)
    alien = (data > 0) & ((kind == ABSENT) | (kind == GC)) | (gc > 0) & ((kind == ABSENT) | (kind == DATA))
    blame("not_in_archive", alien & known)
    if filtered:
        blame("filtered_delivered", (data > 0) & (kind == DATA) & ~passing & known)
    again = np.maximum(total - 1, 0)
    blame("duplicate", again > 0, int(again.sum()))
    rows = is_event | is_grave
    begin = block * SIZE
    late = rows & (pieces.at + begin <= pieces.high)
    if late.any():
        to = np.minimum(pieces.to[late], pieces.high[late] - begin)
        blame("out_of_order", given & (counted(pieces.at[late], to) == total))
    repeated = int(np.count_nonzero(given & seen))
    seen |= given
    return Verdict(
        delivered=int(data.sum() + gc.sum()),
        collected=int(np.count_nonzero(graves)),
        repeated=repeated,
        violations=found,
        buried=_buried(published, graves > 0),
        buried_us=int(pieces.time_us[is_grave].max()) if is_grave.any() else 0,
        latencies=_latencies(published, pieces, is_event),
    )


def _buried(published: Published, graves: Array) -> tuple[Array, Array]:
    mask = graves & published.complete & ((published.kind == DATA) | (published.kind == GC))
    return ranges_of(mask) if mask.any() else (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _latencies(published: Published, pieces: Pieces, is_event: Array) -> Array:
    """From publishing to handing over, of every delivered event whose time the archive has."""
    at, lengths = pieces.at[is_event], pieces.to[is_event] - pieces.at[is_event] + 1
    if not len(at):
        return np.zeros(latency.BUCKETS, np.int64)
    starts = np.cumsum(lengths) - lengths
    numbers = np.arange(int(lengths.sum())) - np.repeat(starts - at, lengths)
    known = (published.kind[numbers] == DATA) | (published.kind[numbers] == GC)
    taken_us = np.repeat(pieces.time_us[is_event], lengths) - published.time_us[numbers]
    return latency.histogram(taken_us[known])
