"""The last update of a source that a stream has: what its log must have at that position too."""

import numpy as np

from qanat.capture.continuity import Mark, mark_at
from qanat.capture.rebuild import is_update, updates_of
from qanat.client import Client, EventsLost
from qanat.events.batch import Batch
from qanat.events.position import Position

_WINDOWS = (256, 4096, 65_536)
"""How far back it is looked for among events of other sources."""
_WAIT_S = 10.0


def last_of(client: Client, stream: str, source: str, position: Position) -> Mark | None:
    """The update that the stream has at this position of the source, which is the source's last; None if it
    is not found, for it was collected, was a loss, or lies too far back among events of others."""
    end = next((status["next"] for status in client.ask("streams") if status["stream"] == stream), 1)
    for window in _WINDOWS:
        start = max(end - window, 1)
        found = _between(client, stream, (start, end), source, position)
        if found is not None or start == 1:
            return found
    return None


def _between(
    client: Client, stream: str, between: tuple[int, int], source: str, position: Position
) -> Mark | None:
    found: Mark | None = None
    start, end = between
    with client.subscribe(stream, start=start) as reading:
        while reading.next < end:
            try:
                batches = reading.take(_WAIT_S)
            except EventsLost:
                continue
            if not batches:
                return found
            for batch in batches:
                found = _in(batch, source, position) or found
    return found


def _in(batch: Batch, source: str, position: Position) -> Mark | None:
    places, codes = batch.positions(), batch.source_codes()
    if places is None or source not in batch.source_names:
        return None
    hits = (places[0] == position.sequence) & (places[1] == position.index) & is_update(batch)
    if codes is not None:
        hits &= codes == batch.source_names.index(source)
    if not hits.any():
        return None
    return mark_at(updates_of(batch.take(np.flatnonzero(hits)[:1])), position)
