"""The demonstration's datastore: an embedded RocksDB that one process writes to, as an application does.

Orders are numbered from 0 on, and each carries its number and when it was written. One write in ten is of a
draft, which nobody should hear of.
"""

import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
import pyarrow as pa

HEAD = np.dtype([("number", "<u8"), ("time_us", "<i8")])
WIDTH = 100
ORDERS, DRAFTS = 180, 20
"""Of one write batch."""
PAUSE_S = 0.02
REPORT_S = 0.2
_KEPT_S = 3600
"""For how long RocksDB keeps its log after the data is in other files: the reader may be behind."""

Array = np.ndarray[Any, Any]


def write(pipe: Pipe, folder: str, seconds: float) -> None:
    """Writes one batch, then waits for a word and writes for a while; says how much it has written: all, and
    orders."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_wal_ttl_seconds(_KEPT_S)
    database = rocksdict.Rdict(folder, options)
    orders = drafts = 0

    def batch() -> None:
        nonlocal orders, drafts
        made = rocksdict.WriteBatch(raw_mode=True)
        rest = bytes(WIDTH - HEAD.itemsize)
        now = (time.time_ns() // 1000).to_bytes(8, "little")
        for number in range(orders, orders + ORDERS):
            made.put(b"order/%d" % number, number.to_bytes(8, "little") + now + rest)
        for number in range(drafts, drafts + DRAFTS):
            made.put(b"draft/%d" % number, bytes(WIDTH))
        database.write(made)
        orders, drafts = orders + ORDERS, drafts + DRAFTS

    try:
        batch()
        pipe.send("ready")
        pipe.recv()
        end, told = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            batch()
            if time.monotonic() - told > REPORT_S:
                told = time.monotonic()
                pipe.send(("written", orders + drafts, orders))
            time.sleep(PAUSE_S)
        pipe.send(("done", orders + drafts, orders))
        pipe.recv()  # the database stays open, as an application's does
    finally:
        database.close()


def heads(values: pa.Array) -> Array:
    """What stands in the values of orders."""
    column = values.cast(pa.binary(WIDTH))
    data = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * WIDTH :]
    rows = data[: len(column) * WIDTH].reshape(-1, WIDTH)[:, : HEAD.itemsize]
    return np.ascontiguousarray(rows).view(HEAD).reshape(-1)


class Roll:
    """Which orders a subscriber was given, by what stands in them: each once, and in every stream in the
    order of writing."""

    def __init__(self) -> None:
        self.delivered = self.duplicated = self.out_of_order = 0
        self._seen = np.zeros(1 << 16, bool)
        self._high: dict[str, int] = {}

    def take(self, stream: str, numbers: Array) -> None:
        """Numbers of one batch."""
        numbers = numbers.astype(np.int64)
        top = int(numbers.max()) + 1
        if top > len(self._seen):
            self._seen = np.concatenate((self._seen, np.zeros(2 * top - len(self._seen), bool)))
        first_time = np.zeros(len(numbers), bool)
        first_time[np.unique(numbers, return_index=True)[1]] = True
        fresh = first_time & ~self._seen[numbers]
        high = np.maximum.accumulate(np.concatenate(([self._high.get(stream, -1)], numbers)))
        self.delivered += len(numbers)
        self.duplicated += int(np.count_nonzero(~fresh))
        self.out_of_order += int(np.count_nonzero(fresh & (numbers < high[:-1])))
        self._seen[numbers] = True
        self._high[stream] = int(high[-1])

    def lost(self, orders: int) -> int:
        """How many of the orders 0, 1, … have not come."""
        return orders - int(np.count_nonzero(self._seen[:orders]))
