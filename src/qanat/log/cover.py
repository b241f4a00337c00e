"""What a numbered batch covers: that nothing is left out."""

from qanat.events.batch import Batch
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
