"""What clients get, and when the last of them has it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from qanat.events.batch import Batch
from qanat.sim import SimNode, World

S = 1_000_000
BIN_US = 100_000
"""Deliveries are counted by tenths of a second."""


class Complete(NamedTuple):
    """One batch: when its region's proxy got it, and when the last client of all had it."""

    published_us: int
    delivered_us: int
    events: int

    @property
    def latency_ms(self) -> float:
        return (self.delivered_us - self.published_us) / 1000


class Meter:
    """Hears of every delivery; attach it to a world before anything is published."""

    def __init__(self, world: World, clients: int) -> None:
        self.clients = clients
        """Of all regions."""
        self.bins: defaultdict[int, int] = defaultdict(int)
        """Events by the bin of their delivery, over all clients."""
        self.stream_bins: defaultdict[tuple[int, int], int] = defaultdict(int)
        """The same by stream and bin."""
        self.complete: defaultdict[int, list[Complete]] = defaultdict(list)
        """By stream."""
        self._left: dict[tuple[int, int], int] = {}
        """By stream and last number: the clients that do not have the batch yet."""
        self._published: dict[tuple[int, int], Complete] = {}
        world.deliver_hooks.append(self._on_deliver)

    def _on_deliver(self, world: World, node: SimNode, item: object) -> None:
        if not isinstance(item, Batch):
            return
        now, count, header = world.now, item.count, item.header
        bin_number = now // BIN_US
        self.bins[bin_number] += count
        self.stream_bins[header.stream, bin_number] += count
        key = (header.stream, item.last)
        left = self._left.get(key)
        if left is None:
            left = self.clients
            self._published[key] = Complete(header.time_us, 0, count)
        if left == 1:
            begun = self._published.pop(key)
            del self._left[key]
            self.complete[header.stream].append(begun._replace(delivered_us=now))
        else:
            self._left[key] = left - 1

    def throughput(self, from_us: int, until_us: int, stream: int | None = None) -> float:
        """Events per second that the average client got, of one stream or of all; the times are whole
        bins."""
        bins = range(from_us // BIN_US, until_us // BIN_US)
        if stream is None:
            events = sum(self.bins[number] for number in bins)
        else:
            events = sum(self.stream_bins[stream, number] for number in bins)
        return events / self.clients / ((until_us - from_us) / S)

    def latency_ms(self, stream: int, from_us: int, until_us: int, now_us: int) -> float:
        """The mean over batches published in that time; one that is not complete counts with its age so far,
        which is less than its latency: under overload this is a lower bound."""
        whole = [one for one in self.complete[stream] if from_us <= one.published_us < until_us]
        open_us = [
            now_us - begun.published_us
            for (of, _), begun in self._published.items()
            if of == stream and from_us <= begun.published_us < until_us
        ]
        ages = [one.latency_ms for one in whole] + [age / 1000 for age in open_us]
        return sum(ages) / len(ages) if ages else float("nan")

    def incomplete(self) -> int:
        return len(self._left)
