"""Where the next range of a log ends: the one rule of all who plan ranges.

There are two planners, since Spark has two interfaces for them. That of the format `qanat` (`changes_ranges`)
has limits and ends by itself, and a task of Spark's reads the range's row. That of a pipeline
(`ingest.ranges`) hands the row over with the answer, which saves that task in every micro-batch, and has no
limits then. Nothing that decodes or publishes is imported here: the process that plans does neither, and is
waited for when a query starts.
"""

from qanat.capture.reader import Dividing, LogReader
from qanat.events.position import Position
from qanat.pipeline.changes.offsets import is_beyond


def range_end(
    reader: LogReader, scheme: str, after: Position, newest: Position, rows: int
) -> Position | None:
    """None if there is nothing behind `after`; else `newest`, or where a range of about so many rows ends if
    the reader can divide its log."""
    if not is_beyond(scheme, newest, after):
        return None
    return reader.divide(after, newest, rows) if isinstance(reader, Dividing) else newest
