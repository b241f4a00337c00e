"""Counts, from the payloads alone, what a subscriber was given: each event once, in its producer's order.

It knows nothing of sequence numbers, positions or the protocol: producers write their number and a counter
into each payload, and the tally compares the counters that arrive with 0, 1, 2, …
"""

from typing import Any

import numpy as np
import pyarrow as pa

HEAD = np.dtype([("producer", "<u8"), ("counter", "<u8")])


def make(producer: int, start: int, count: int, width: int) -> pa.Array:
    """`count` payloads of `width` bytes (at least 16) of one producer, counting from `start`."""
    rows = np.zeros((count, width), np.uint8)
    head = np.zeros(count, HEAD)
    head["producer"] = producer
    head["counter"] = np.arange(start, start + count)
    rows[:, : HEAD.itemsize] = head.view(np.uint8).reshape(count, HEAD.itemsize)
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(rows)])


def heads(payloads: pa.Array) -> np.ndarray[Any, np.dtype[np.void]]:
    """What the producers wrote into these payloads, which are of one width."""
    width = payloads.type.byte_width
    data = np.frombuffer(payloads.buffers()[1], np.uint8)[payloads.offset * width :]
    rows = data[: len(payloads) * width].reshape(-1, width)[:, : HEAD.itemsize]
    return np.ascontiguousarray(rows).view(HEAD).reshape(-1)


class Tally:
    """What one subscriber has seen of `producers` producers."""

    def __init__(self, producers: int) -> None:
        self.delivered = self.duplicated = self.out_of_order = 0
        self._next = [0] * producers
        self._missing: list[set[int]] = [set() for _ in range(producers)]

    def take(self, payloads: pa.Array) -> None:
        """One batch's payloads."""
        head = heads(payloads)
        self.delivered += len(head)
        for producer, expected in enumerate(self._next):
            counters = head["counter"][head["producer"] == producer]
            if np.array_equal(counters, np.arange(expected, expected + len(counters))):
                self._next[producer] += len(counters)
            else:
                for counter in counters.tolist():
                    self._odd(producer, counter)

    def _odd(self, producer: int, counter: int) -> None:
        missing, expected = self._missing[producer], self._next[producer]
        if counter >= expected:
            missing.update(range(expected, counter))
            self._next[producer] = counter + 1
        elif counter in missing:
            missing.remove(counter)
            self.out_of_order += 1
        else:
            self.duplicated += 1

    def lost(self, published: list[int]) -> int:
        """How many of the events that each producer published have not come."""
        gaps = sum(map(len, self._missing))
        return gaps + sum(max(0, total - seen) for total, seen in zip(published, self._next, strict=True))
