"""What a proxy stores of a workload: as the stream's own log keeps it, and as counting tells it.

Under the key-based policy an event collects the earlier ones of its key, so one event is left for each
distinct key. `LogStorage` asks the log that ships. `CountedStorage` shares nothing with it, serves as its
judge, and goes on where the log would need more memory than this machine has.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.errors import InvariantError
from qanat.log import LogConfig, OsDisk, Policy, StreamLog, Truncated
from qanat.studies.s14.popularity import Ints

STREAM = stream_id("invalidations")
_BATCH_EVENTS = 1 << 15
_READ_BYTES = 1 << 24
_COLLECT_BYTES = 256 * 1024 * 1024


class LogStorage:
    """A `StreamLog` in memory under the key-based policy."""

    def __init__(self, events_max: int) -> None:
        config = LogConfig(
            mode="memory",
            policy=Policy(by_key=True),
            # Its index must hold every key: at the limit it forgets some, and keeps their last event for
            # ever.
            index_keys_max=2 * events_max + 2,
            retain_bytes=1 << 40,  # collection alone decides what is kept
        )
        self._log = StreamLog.open(OsDisk(), "memory", STREAM, config)
        self._collected_bytes = 0

    def add(self, keys: Ints) -> None:
        for start in range(0, len(keys), _BATCH_EVENTS):
            piece = np.ascontiguousarray(keys[start : start + _BATCH_EVENTS], "<i8")
            column = pa.Array.from_buffers(pa.binary(8), len(piece), [None, pa.py_buffer(piece)])
            self._log.append(Batch.build(STREAM, np.zeros((len(piece), 0), np.uint8), keys=column, time_us=1))
        if self._log.stats().bytes > self._collected_bytes + _COLLECT_BYTES:
            self._log.collect(_COLLECT_BYTES)
            self._collected_bytes = self._log.stats().bytes

    def kept(self) -> int:
        """Events that garbage collection has left."""
        stats = self._log.stats()
        return stats.rows - stats.dead_rows

    def read_back(self) -> int:
        """Collects all that is dead and counts the events that a new reader would get."""
        while self._log.collect(everything=True).more:
            pass
        start, found = 1, 0
        while start < self._log.next:
            chunk = self._log.read(start, _READ_BYTES)
            if isinstance(chunk, Truncated) or not chunk.data:
                raise InvariantError(f"the log of the study does not give event {start}")
            for batch in chunk.batches():
                kinds = batch.kinds
                found += batch.count if kinds is None else int((kinds == Kind.DATA).sum())
            start = chunk.last + 1
        return found

    def close(self) -> None:
        self._log.close()


class CountedStorage:
    """Distinct keys, exactly: a sorted array of those that were seen."""

    def __init__(self) -> None:
        self._seen = np.zeros(0, np.int64)
        self._waiting: list[Ints] = []
        self._events_waiting = 0

    def add(self, keys: Ints) -> None:
        self._waiting.append(_distinct(np.sort(keys)))  # np.unique hashes, which takes ten times as long
        self._events_waiting += len(self._waiting[-1])
        if self._events_waiting > len(self._seen) // 2 + _BATCH_EVENTS:
            self._settle()

    def kept(self) -> int:
        return len(self.keys())

    def keys(self) -> Ints:
        """Those that were seen, rising."""
        self._settle()
        return self._seen

    def _settle(self) -> None:
        if not self._waiting:
            return
        runs = np.concatenate((self._seen, *self._waiting))
        self._seen = _distinct(np.sort(runs, kind="stable"))  # which notices that they are sorted already
        self._waiting, self._events_waiting = [], 0


def _distinct(rising: Ints) -> Ints:
    fresh = np.ones(len(rising), bool)
    fresh[1:] = rising[1:] != rising[:-1]
    return rising[fresh]
