"""Log readers: what was committed to a datastore, in order, as updates of one form (Wormhole, section 3)."""

from qanat.capture.reader import Acknowledging, LogReader, Lost, Start
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run, Updates

__all__ = ["Acknowledging", "Column", "LogReader", "Lost", "Op", "Run", "Start", "Table", "Updates"]
