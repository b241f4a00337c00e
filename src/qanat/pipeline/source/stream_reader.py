"""Streams as a source of a streaming query: micro-batch after micro-batch, each a range of sequence numbers.

All state is in the offsets, which Spark keeps in the checkpoint: the process that this runs in may end at any
moment.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from qanat.client import Client
from qanat.events.errors import QanatError
from qanat.pipeline.sentences import in_sentences
from qanat.pipeline.source.clients import client_of
from qanat.pipeline.source.offsets import Place, Places, offset_of, places_of
from qanat.pipeline.source.options import BadOption, StreamOptions
from qanat.pipeline.source.planning import behind, look, look_at, ranges, shares, streams_of
from qanat.pipeline.source.reading import StreamRange, gone, read_range
from qanat.wire.streams import Seen

log = logging.getLogger("qanat.pipeline")

_REPORT_S = 1.0
"""Nobody waits for a server only to be told how far behind a query is."""
_RELEASE_EVENTS = 1000
"""What was read is released when there is so much of it. An event says so in the stream, and is read itself:
with less than two of them this would never end."""


@in_sentences
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made anew in each process that needs one, from the options alone."""

    def __init__(self, options: StreamOptions, columns: Sequence[str]) -> None:
        if not options.until_the_end:
            raise BadOption(
                "option 'end' is for batches; a streaming query ends with trigger(availableNow=True)"
            )
        self._options, self._columns = options, tuple(columns)
        self._target: dict[str, int] | None = None
        self._latest: Places = {}
        self._planned: dict[str, Any] | None = None
        self._released: dict[str, int] = {}
        """Up to where, at least as far as this process knows: whatever it finds read when it begins, another
        may have released."""

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs of it."""
        return {"_options": self._options, "_columns": self._columns}

    # --- offsets --------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        options = self._options
        with client_of(options.url, patience=options.patience) as client:
            places = {}
            for stream in streams_of(client, options):
                start = options.start_of(stream)
                seen = look(client, options, stream, start)
                if seen.start > seen.readable + 1:
                    raise BadOption(
                        f"option 'start' is {start}, but stream {stream!r} at {options.url} ends at"
                        f" {seen.readable}: is it another?"
                    )
                places[stream] = Place(
                    seen.start, seen.born_us, seen.mark, 0 if start == "earliest" else seen.start
                )
        return offset_of(places)

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.rows:
            return ReadMaxRows(options.rows)
        return ReadMaxBytes(options.bytes) if options.bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with client_of(self._options.url, patience=self._options.patience) as client:
            self._target = {
                name: look(client, self._options, name, "latest").readable
                for name in streams_of(client, self._options)
            }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options = self._options
        rows, size = self._limits(limit)
        with client_of(options.url, patience=options.patience) as client:
            begins = self._begins(client, places_of(start))
            each = max(1, size // max(len(begins), 1)) if size else 0
            seen = {name: look_at(client, options, name, place, each) for name, place in begins.items()}
            for name, place in begins.items():
                self._released.setdefault(name, place.next - 1)
            self._latest = {name: Place(one.readable + 1) for name, one in seen.items()}
            ends = {name: self._end(name, one) for name, one in seen.items()}
            if rows:
                available = {name: max(0, ends[name] - place.next + 1) for name, place in begins.items()}
                ends = {name: begins[name].next - 1 + have for name, have in shares(available, rows).items()}
            places = {
                name: self._reached(client, name, begins[name], seen[name], end) for name, end in ends.items()
            }
        self._planned = offset_of(places)
        return self._planned

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Events and bytes; 0 is no limit. Both may be set, and Spark knows of one."""
        if isinstance(limit, ReadAllAvailable):
            return 0, 0
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes
        return rows, size

    def _begins(self, client: Client, places: Places) -> Places:
        """Where each stream goes on. One that the checkpoint does not know begins at its earliest event."""
        options = self._options
        streams = streams_of(client, options)
        for name in set(places) - set(streams):
            if not options.reads(name):
                raise behind(options, name, places[name])
            streams += (
                name,
            )  # of a pattern; that the stream is no longer there is said when it is looked at
        new = {}
        for name in set(streams) - set(places):
            seen = look(client, options, name, "earliest")
            new[name] = Place(seen.start, seen.born_us, seen.mark, seen.start)
        return {name: new[name] if name in new else places[name] for name in streams}

    def _end(self, name: str, seen: Seen) -> int:
        target = seen.readable if self._target is None else self._target.get(name, 0)
        return min(seen.within, target)

    def _reached(self, client: Client, name: str, begin: Place, seen: Seen, end: int) -> Place:
        """The place after `end`, with what a later look can be compared with."""
        if end < begin.next:
            return begin
        if self._options.losses == "stop" and begin.next < seen.first:
            raise gone(name, begin.next, seen.first - 1)
        mark = seen.end_mark if end == seen.within else look(client, self._options, name, end + 1).mark
        return Place(end + 1, seen.born_us, mark, begin.start)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For Spark's progress alone: which stream it is, where it ends now, and how many of its events are
        behind what was planned last."""
        if self._planned is None:
            return None
        url, ends = self._options.url, places_of(self._planned)
        with suppress(QanatError), client_of(url, patience=_REPORT_S) as client:
            for name in ends:
                self._latest[name] = Place(look(client, self._options, name, "latest").readable + 1)
        told = {}
        for name, end in sorted(ends.items()):
            latest = max(self._latest[name].next, end.next)
            told[name] = {"next": latest, "lag": latest - end.next, "url": url}
        return told

    # --- reading --------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options = self._options
        begins, ends = places_of(start), places_of(end)
        if end != self._planned:  # a micro-batch of a former life, whose offsets are in the checkpoint
            with client_of(options.url, patience=options.patience) as client:
                for name, known in (*begins.items(), *ends.items()):
                    if not options.reads(name):
                        raise behind(options, name, known)
                    look_at(client, options, name, known)
        parts: list[InputPartition] = []
        for name, place in ends.items():
            first = begins[name].next if name in begins else place.start
            parts += ranges(options, name, first, place.next - 1, options.where)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamRange)
        options = self._options
        return read_range(
            options.url,
            partition,
            self._columns,
            losses=options.losses,
            patience=options.patience,
        )

    # --- what is done with ----------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has the results of everything up to `end`; if the query was told to, the stream may now
        forget it."""
        if not self._options.release:
            return
        for name, place in places_of(end).items():
            upto = place.next - 1
            if upto - self._released.setdefault(name, upto) >= _RELEASE_EVENTS:
                # What lies before the query's beginning it has never read, and is somebody else's.
                done = f"upto {upto}" if place.start <= 1 else f"@seq in {place.start}..{upto}"
                with client_of(self._options.url, patience=self._options.patience) as client:
                    client.publish(name, b"", collects=done)
                self._released[name] = upto

    def stop(self) -> None:
        """The client is the process's, and ends with it."""
