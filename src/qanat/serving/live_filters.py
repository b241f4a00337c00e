"""The filters of those who are live at a stream's edge, asked together about what came; within a moment, or
not at all."""

from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np

from qanat.events.batch import Batch
from qanat.events.filters import Filter, FilterIndex
from qanat.serving.filter_cost import AT_ONCE, per_byte, searched_bytes
from qanat.serving.subscriber import Subscriber, chosen

_INDEXED_MAX = 65_536
"""Alternatives of filters that are asked together: more take longer to plan than anybody should wait. Those
beyond are asked one by one."""
_FIND_S = 0.05
"""For so long all filters together may look through what came."""
_PAIRS = 1 << 18
"""Rows times filters that are looked at before the clock is."""


_NONE = np.zeros(0, np.int64)


class Found(NamedTuple):
    """The rows that a filter lets through, and the last sequence number of the batch that they are from."""

    rows: Batch
    listeners: dict[Subscriber, None]
    last: int


class Listeners:
    """A filter stays in the index while somebody is subscribed with it who was live once: to plan it again
    each time that one of them is slow would cost more."""

    def __init__(self) -> None:
        self._index = FilterIndex()
        self._numbers: dict[Filter, int] = {}
        self._count: dict[int, int] = {}
        """Who is subscribed with it."""
        self._live: dict[int, dict[Subscriber, None]] = {}
        self._next = 0
        self._per_byte = 0
        """Instructions that the patterns of all take for each byte."""

    def takes(self, subscriber: Subscriber) -> bool:
        """Whether its filter can be asked together with others'."""
        return subscriber.indexed or not (subscriber.heavy or self._index.entries >= _INDEXED_MAX)

    def listen(self, subscriber: Subscriber, where: Filter) -> None:
        number = self._numbers.get(where)
        if number is None:
            number = self._numbers[where] = self._next
            self._next += 1
            self._index.add(number, where)
            self._per_byte += per_byte(where)
            self._count[number], self._live[number] = 0, {}
        if not subscriber.indexed:
            subscriber.indexed = True
            self._count[number] += 1
        self._live[number][subscriber] = None

    def rest(self, subscriber: Subscriber) -> None:
        """It is not live any more, for now."""
        if subscriber.indexed and subscriber.filter is not None:
            self._live[self._numbers[subscriber.filter]].pop(subscriber, None)

    def forget(self, subscriber: Subscriber) -> None:
        """It is not subscribed any more."""
        where = subscriber.filter
        if not subscriber.indexed or where is None:
            return
        self.rest(subscriber)
        subscriber.indexed = False
        number = self._numbers[where]
        self._count[number] -= 1
        if not self._count[number]:
            del self._numbers[where], self._count[number], self._live[number]
            self._index.remove(number)
            self._per_byte -= per_byte(where)

    def find(self, batches: list[Batch]) -> list[Found] | None:
        """None if it would take long, as where many filters let many rows through, or many patterns search
        much text."""
        if self._per_byte and self._per_byte * searched_bytes(batches) > AT_ONCE:
            return None
        found: list[Found] = []
        until_s = perf_counter() + _FIND_S
        at_once = max(64, _PAIRS // (1 + len(self._index)))
        for batch in batches:
            for part in _parts(batch, at_once):
                found += [Found(rows, self._live[number], batch.last) for number, rows in self._matches(part)]
                if perf_counter() > until_s:
                    return None
        return found

    def _matches(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """(filter, its rows) for each filter that has any and somebody who is live."""
        offsets, ids = self._index.match(batch)
        rows = np.repeat(np.arange(batch.count), np.diff(offsets))
        order = np.argsort(ids, kind="stable")
        numbers, starts = np.unique(ids[order], return_index=True)
        groups = (
            dict(zip(numbers.tolist(), np.split(rows[order], starts[1:]), strict=True)) if len(ids) else {}
        )
        # GC events and tombstones go to everyone, so with one in the batch every filter has rows.
        for number in list(groups) if batch.kinds is None else list(self._live):
            if self._live[number]:
                mask = np.zeros(batch.count, bool)
                mask[groups.get(number, _NONE)] = True
                taken = chosen(batch, mask)
                if taken is not None:
                    yield number, taken


def _parts(batch: Batch, at_once: int) -> Iterator[Batch]:
    if batch.count <= at_once:
        yield batch
        return
    for start in range(0, batch.count, at_once):
        yield batch.slice(start, min(start + at_once, batch.count))
