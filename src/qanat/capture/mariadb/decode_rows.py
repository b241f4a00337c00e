"""Images of rows, from the bytes of many events of one table at once, as Arrow columns.

An image is a bitmap of nulls and then the values that are not null, laid end to end, so where a row begins is
known only when the one before it was measured. Rows of different events do not depend on each other: the
first rows of all events are measured together, then the second rows, and so on; each step is a handful of
array operations. Once it is known where rows begin, columns are decoded over all rows together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb.decode_values import Bytes, Nulls, Offsets, fixed, variable
from qanat.capture.mariadb.types import ColumnType

_PAD = bytes(64)
_FEW = 6
"""Below so many events a step by arrays costs more than Python's own arithmetic."""


@dataclass(frozen=True, slots=True)
class Images:
    """Where images lie: `starts` of all of them, in order, and `counts` for each event."""

    data: bytes
    starts: Offsets
    counts: npt.NDArray[np.int64]

    @property
    def size(self) -> int:
        """Where the last image ends."""
        return len(self.data) - len(_PAD)


class Layout:
    """How the rows of one version of a table are laid out."""

    def __init__(self, columns: Sequence[ColumnType]) -> None:
        for column in columns:
            column.check()
        self.columns = tuple(columns)
        self.bitmap = (len(columns) + 7) // 8
        self._unused = 0xFF << (len(columns) % 8 or 8) & 0xFF
        """Bits of the bitmap's last byte that belong to no column; servers leave them set."""
        # Runs of columns of fixed width, each ended by one column that says its own length (or by the end of
        # the row).
        self._runs: list[tuple[int, int, npt.NDArray[np.int64], int]] = []
        first = 0
        for at, column in enumerate(columns):
            if not column.width:
                self._runs.append(self._run(first, at, column.prefix))
                first = at + 1
        self._runs.append(self._run(first, len(columns), 0))
        self._plans: dict[bytes, tuple[int, list[tuple[int, int]]]] = {}

    def _run(self, first: int, last: int, prefix: int) -> tuple[int, int, npt.NDArray[np.int64], int]:
        return first, last, np.array([column.width for column in self.columns[first:last]], np.int64), prefix

    def locate(self, bodies: Sequence[bytes | memoryview]) -> Images:
        """Where the images of these events are; each body is images end to end."""
        sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
        data = b"".join([*bodies, _PAD])
        buffer = np.frombuffer(data, np.uint8)
        ends = np.cumsum(sizes)
        cursor = ends - sizes
        alive = np.flatnonzero(cursor < ends)
        counts = np.zeros(len(bodies), np.int64)
        found: list[Offsets] = []
        while len(alive) > _FEW:
            here = cursor[alive]
            found.append(here)
            counts[alive] += 1
            after = self._measure(buffer, here)
            if (after > ends[alive]).any() or (after <= here).any():
                raise MalformedLog("an event of rows ends in the middle of a row")
            cursor[alive] = after
            alive = alive[after < ends[alive]]
        for event in alive.tolist():
            walked = self._walk(data, int(cursor[event]), int(ends[event]))
            counts[event] += len(walked)
            found.append(np.array(walked, np.int64))
        starts = np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
        return Images(data, starts, counts)

    def _measure(self, buffer: Bytes, here: Offsets) -> Offsets:
        """Where the rows that begin here end. Offsets stay inside the buffer whatever the bytes say."""
        top = len(buffer) - len(_PAD)
        cursor = here + self.bitmap
        nulls = self._nulls(buffer, np.minimum(here, top - min(top, self.bitmap)))
        for first, last, widths, prefix in self._runs:
            if nulls is None:
                cursor = cursor + int(widths.sum())
            elif last > first:
                cursor = cursor + (~nulls[:, first:last] @ widths)
            if prefix:
                cursor = np.minimum(cursor, top)
                size = self._sizes(buffer, cursor, prefix) + prefix
                cursor = cursor + (size if nulls is None else np.where(nulls[:, last], 0, size))
        return cursor

    def _nulls(self, buffer: Bytes, here: Offsets) -> Nulls | None:
        """Which values are null; None if none is."""
        if not self.bitmap:
            return None
        bits = buffer[np.minimum(here[:, None] + np.arange(self.bitmap), len(buffer) - 1)]
        if self._unused:
            bits[:, -1] &= ~np.uint8(self._unused)
        if not bits.any():
            return None
        return np.unpackbits(bits, axis=1, count=len(self.columns), bitorder="little").view(bool)

    @staticmethod
    def _sizes(buffer: Bytes, at: Offsets, prefix: int) -> Offsets:
        size = buffer[at].astype(np.int64)
        for byte in range(1, prefix):
            size |= buffer[at + byte].astype(np.int64) << (8 * byte)
        return size

    def _walk(self, data: bytes, start: int, end: int) -> list[int]:
        """The same one row after the other, for an event that is alone."""
        starts = []
        plans, width = self._plans, self.bitmap
        while start < end:
            starts.append(start)
            bitmap = data[start : start + width]
            plan = plans.get(bitmap)
            if plan is None:
                plan = self._plan(bitmap)
            tail, steps = plan
            for skip, prefix in steps:
                start += skip
                if start + prefix > end:
                    raise MalformedLog("an event of rows ends in the middle of a row")
                start += prefix + (
                    data[start] if prefix == 1 else int.from_bytes(data[start : start + prefix], "little")
                )
            start += tail
        if start != end or (starts and starts[-1] == end):
            raise MalformedLog("an event of rows ends in the middle of a row")
        return starts

    def _plan(self, bitmap: bytes) -> tuple[int, list[tuple[int, int]]]:
        """Bytes to skip before each length, for rows with these nulls, and after the last of them."""
        bits = int.from_bytes(bitmap, "little")
        steps = []
        skip = self.bitmap
        for at, column in enumerate(self.columns):
            if bits >> at & 1:
                continue
            if column.width:
                skip += column.width
            else:
                steps.append((skip, column.prefix))
                skip = 0
        if len(self._plans) > 4096:
            self._plans.clear()
        plan = self._plans[bitmap] = (skip, steps)
        if not skip and not steps:
            raise MalformedLog("an event has rows of no bytes")
        return plan

    def decode(self, data: bytes, starts: Offsets, *, zero_dates_null: bool = False) -> list[pa.Array]:
        """The columns of the rows that begin at these offsets, which were located before."""
        buffer = np.frombuffer(data, np.uint8)
        shared = pa.py_buffer(data)
        nulls = self._nulls(buffer, starts)
        cursor = starts + self.bitmap
        arrays = []
        for at, column in enumerate(self.columns):
            missing = None if nulls is None else nulls[:, at]
            if missing is not None and not missing.any():
                missing = None
            if column.width:
                arrays.append(fixed(buffer, cursor, missing, column, zero_dates_null))
                size: Offsets | int = column.width
            else:
                length = self._sizes(buffer, cursor, column.prefix)
                if missing is not None:
                    length[missing] = 0
                begin = (
                    cursor + column.prefix
                    if missing is None
                    else np.where(missing, cursor, cursor + column.prefix)
                )
                arrays.append(variable(shared, begin, length, missing, column))
                size = length + column.prefix
            cursor = cursor + (size if missing is None else np.where(missing, 0, size))
        return arrays
