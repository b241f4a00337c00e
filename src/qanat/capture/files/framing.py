"""Where records begin in the bytes of a file, and their bytes as a column: lines, and records with their
length before them.

Pure: bytes in, columns out. What is behind the last whole record is left for when there is more. What cannot
be a record is left too, and is an error when it is what the bytes begin with.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.errors import MalformedLog

PREFIX_BYTES = 4
_MEASURES = {"big": Struct(">I"), "little": Struct("<I")}
_ALIKE = 16
_ONE_BY_ONE = 2048
"""Records that are measured one by one before it is looked again whether many of one length follow each
other."""


class Frames(NamedTuple):
    """Records by where they begin, each ending where the next begins, the last at `consumed`."""

    starts: npt.NDArray[np.int64]
    consumed: int

    def bounds(self) -> npt.NDArray[np.int64]:
        return np.append(self.starts, self.consumed)


@dataclass(frozen=True, slots=True)
class Lines:
    """A record is what a newline ends."""

    record_limit: int
    prefix = 0
    suffix = 1

    def split(self, data: bytes) -> Frames:
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")).astype(np.int64) + 1
        bounds = np.concatenate([np.zeros(1, np.int64), ends])
        long = np.flatnonzero(np.diff(bounds) > self.record_limit)
        if len(long):
            bounds = bounds[: int(long[0]) + 1]
        if len(bounds) == 1 and len(data) > self.record_limit:
            raise MalformedLog(
                f"a line has more than {self.record_limit} bytes; if that is right, raise the option"
                " record_limit="
            )
        return Frames(bounds[:-1], int(bounds[-1]))


@dataclass(frozen=True, slots=True)
class Prefixed:
    """A record has its length before it, in four bytes; the length does not count these."""

    record_limit: int
    order: Literal["big", "little"] = "big"
    prefix = PREFIX_BYTES
    suffix = 0

    def split(self, data: bytes) -> Frames:
        """Each record must be measured to find the next: many of one length are measured at once, others in a
        loop."""
        starts: list[npt.NDArray[np.int64]] = []
        at = 0
        while True:
            alike = self._alike(data, at)
            if alike is not None:
                starts.append(alike)
                at = int(alike[-1]) + int(alike[1] - alike[0])
            found, at = self._one_by_one(data, at)
            starts.append(np.array(found, np.int64))
            if len(found) < _ONE_BY_ONE:
                return Frames(np.concatenate(starts), at)

    def _alike(self, data: bytes, at: int) -> npt.NDArray[np.int64] | None:
        if len(data) - at < PREFIX_BYTES:
            return None
        length = int.from_bytes(data[at : at + PREFIX_BYTES], self.order)
        step = length + PREFIX_BYTES
        count = (len(data) - at) // step
        if count < _ALIKE or length > self.record_limit:
            return None
        kind = ">u4" if self.order == "big" else "<u4"
        lengths = np.ndarray((count,), kind, data, at, (step,))
        other = lengths != length
        alike = int(np.argmax(other)) if other.any() else count
        return None if alike < _ALIKE else at + step * np.arange(alike, dtype=np.int64)

    def _one_by_one(self, data: bytes, at: int) -> tuple[list[int], int]:
        size, limit = len(data), self.record_limit
        measure = _MEASURES[self.order].unpack_from
        found: list[int] = []
        while len(found) < _ONE_BY_ONE:
            body = at + PREFIX_BYTES
            if body > size:
                break
            (length,) = measure(data, at)
            if length > limit:
                if at:
                    break
                raise MalformedLog(
                    f"a record is said to have {length} bytes, more than {limit}: the other order of bytes,"
                    " another format, or damage; if it is right, raise the option record_limit="
                )
            if body + length > size:
                break
            found.append(at)
            at = body + length
        return found, at


def records(data: bytes, frames: Frames, framing: Lines | Prefixed) -> pa.Array:
    """The bytes of each record, without what frames them."""
    count = len(frames.starts)
    if not count:
        return pa.array([], pa.binary())
    bounds = frames.bounds().astype(np.int32)
    if framing.prefix:  # seen as suffixes of the records before: from the front they cannot be cut
        data += bytes(framing.prefix)
        bounds += framing.prefix
    framed = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return pc.binary_slice(framed, 0, -(framing.prefix or framing.suffix))
