"""Streams as a table that is read once: all that is there at the moment of planning, or a part of it.

Conditions on `seq` and `time` that a query has, and Spark hands down, become ranges of sequence numbers and a
filter of the server. But Spark 4.3 keeps what a DataFrame was first planned with: used in another query, the
same DataFrame would be read with the former one's conditions. So this is done only where the option
`pushdown=once` says that there is no other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from qanat.pipeline.sentences import in_sentences
from qanat.pipeline.source.clients import client_of
from qanat.pipeline.source.options import BadOption, StreamOptions
from qanat.pipeline.source.planning import look, ranges, streams_of
from qanat.pipeline.source.reading import StreamRange, gone, no_rows, read_range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SEQ = (1 << 63) - 1


class Bounds:
    """What the conditions leave of streams, numbers and times; all ends belong to it."""

    def __init__(self) -> None:
        self.first, self.last = 1, _LAST_SEQ
        self.since_us: int | None = None
        self.until_us: int | None = None
        self.streams: set[str] | None = None

    def take(self, condition: Filter) -> bool:
        """Narrows itself; False if the condition has to be looked at by Spark as well."""
        match condition:
            case EqualTo(("stream",), str(name)):
                self.streams = {name} if self.streams is None else self.streams & {name}
            case In(("stream",), names) if all(isinstance(name, str) for name in names):
                self.streams = set(names) if self.streams is None else self.streams & set(names)
            case EqualTo(("seq",), int(value)):
                self.first, self.last = max(self.first, value), min(self.last, value)
            case GreaterThan(("seq",), int(value)):
                self.first = max(self.first, value + 1)
            case GreaterThanOrEqual(("seq",), int(value)):
                self.first = max(self.first, value)
            case LessThan(("seq",), int(value)):
                self.last = min(self.last, value - 1)
            case LessThanOrEqual(("seq",), int(value)):
                self.last = min(self.last, value)
            case EqualTo(("time",), datetime() as value):
                self._times(_us(value), _us(value))
                return False
            case GreaterThan(("time",), datetime() as value) | GreaterThanOrEqual(
                ("time",), datetime() as value
            ):
                self._times(_us(value), None)
                return False
            case LessThan(("time",), datetime() as value) | LessThanOrEqual(("time",), datetime() as value):
                self._times(None, _us(value))
                return False
            case _:
                return False
        return True

    def _times(self, since: int | None, until: int | None) -> None:
        """Spark looks again: GC events and tombstones pass every filter of the server."""
        if since is not None:
            self.since_us = since if self.since_us is None else max(self.since_us, since)
        if until is not None:
            self.until_us = until if self.until_us is None else min(self.until_us, until)

    def where(self, given: str) -> str:
        """The server's filter: what the user gave, and times. Where clocks differ, times do not rise along a
        stream, so a range of numbers alone would not do."""
        if self.since_us is None and self.until_us is None:
            return given
        low = "" if self.since_us is None else str(self.since_us)
        high = "" if self.until_us is None else str(self.until_us)
        times = f"@time in {low}..{high}"
        return f"({given}) and {times}" if given else times


class _Pushing:
    """`pushFilters` that is not there for who asks whether it is.

    Spark refuses a reader with `pushFilters` in sessions that have not turned that on (it is off by default);
    such a session reads everything and looks at the conditions itself, which is right as well.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)  # as it is: bound to this, it would be another one

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


@in_sentences
class BatchReader(DataSourceReader):
    """Made in the process that plans; its tasks get a copy."""

    def __init__(self, options: StreamOptions, columns: Sequence[str]) -> None:
        for name in ("rows", "bytes"):
            if getattr(options, name):
                raise BadOption(
                    f"option 'max{name.title()}PerTrigger' is for streaming queries; a batch has no trigger"
                )
        if options.release:
            raise BadOption("option 'release' is for streaming queries: a batch has no checkpoint")
        self._options, self._columns = options, tuple(columns)
        self._bounds = Bounds()

    @property
    def pushFilters(self) -> Any:
        return _Pushing(self._push)

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        """Those that Spark has to look at itself."""
        if not self._options.pushdown:
            return filters
        return [condition for condition in filters if not self._bounds.take(condition)]

    def partitions(self) -> Sequence[InputPartition]:
        options, bounds = self._options, self._bounds
        parts: list[InputPartition] = []
        with client_of(options.url, patience=options.patience) as client:
            for name in streams_of(client, options):
                if bounds.streams is not None and name not in bounds.streams:
                    continue
                start, end = options.start_of(name), options.end_of(name)
                seen = look(client, options, name, start)
                first, last = seen.start, min(seen.readable, bounds.last)
                if isinstance(end, int):
                    last = min(last, end)
                elif isinstance(end, datetime):
                    last = min(last, look(client, options, name, end).start - 1)
                if bounds.since_us is not None and seen.readable:
                    since = _EPOCH + timedelta(microseconds=bounds.since_us)
                    first = max(first, look(client, options, name, since).start)
                first = max(first, bounds.first)
                if first < seen.first and first <= last and options.losses == "stop":
                    if isinstance(start, int):
                        raise gone(name, first, min(last, seen.first - 1))
                    first = seen.first
                parts += ranges(options, name, first, last, bounds.where(options.where))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StreamRange):  # Spark makes one where there is none
            return iter([no_rows(self._columns)])
        options = self._options
        return read_range(
            options.url,
            partition,
            self._columns,
            losses=options.losses,
            patience=options.patience,
        )


def _us(time: datetime) -> int:
    """Spark hands times down in UTC."""
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(
        microseconds=1
    )
