"""What a numbered batch covers: that nothing is left out, and the part of it from some number on."""

import numpy as np

from qanat.events.batch import Batch, from_draft
from qanat.log.errors import SequenceGap


def check_covered(batch: Batch) -> None:
    """Refuses a batch whose rows, tombstones with their ranges, do not cover every number that it claims."""
    ranges = batch.ranges
    rows = batch.count if ranges is None else int(ranges.sum())
    if rows != batch.span:
        raise SequenceGap(
            f"the batch claims {batch.first}..{batch.last} but {batch.span - rows} of them are left out: "
            "a log stores every event or its tombstone, so ask for the stream unfiltered"
        )


def from_sequence(batch: Batch, start: int) -> Batch:
    """The part from `start` on, which lies within what the batch covers; a tombstone there is shortened."""
    if start <= batch.first:
        return batch
    row = int(np.searchsorted(batch.seqs(), np.uint64(start)))
    part = batch.slice(row, batch.count)
    ranges = part.ranges
    if ranges is None or int(ranges[0]) == 1:
        return part
    draft = part.draft()
    shortened = ranges.copy()
    shortened[0] = int(part.seqs()[0]) - start + 1
    return from_draft(draft._replace(first=start, span=part.last - start + 1, ranges=shortened))
