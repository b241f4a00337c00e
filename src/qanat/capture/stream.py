"""A stream of Qanat as a log: `qanat://host:7411/stream`.

Positions are the stream's own sequence numbers. Events that were updates of a datastore come as these
updates; any other event is a row with the columns `@key` and `@payload` and one for each attribute. What the
stream no longer keeps, or has collected as garbage, is answered as `Lost`; so is what was missing in the log
that the stream was fed from.
"""

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.errors import BadLogUrl, MalformedLog
from qanat.capture.losses import LOST, is_loss, loss_of
from qanat.capture.reader import LogReader, Lost, Start
from qanat.capture.rebuild import is_update, updates_of
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run, Updates
from qanat.capture.url import SHAPES, Finding, LogUrl
from qanat.client import Batch, BlockingSubscription, Client, EventsLost, Kind, RequestRefused
from qanat.events.errors import LocalError, QanatError, RemoteError
from qanat.events.position import Position

OPTIONS = {
    "dataset": "the name of the source, the same wherever the stream is read; needed to feed it into another",
    "where": "a filter; events that do not pass are left out by the server",
}
_POLL_S = 0.02
KEY, PAYLOAD = "@key", "@payload"
_EVENT, _UPDATE, _GONE, _LOSS = range(4)
_COLLECTED = "the stream has collected them as garbage"


class StreamReader(LogReader):
    """Reads by a subscription of its own, which outlives broken connections as any other does."""

    def __init__(self, url: str, stream: str, *, dataset: str = "", where: str = "") -> None:
        self.stream, self._where = stream, where
        self._dataset = dataset
        self._wanted = ""
        self._upto: int | None = None
        """Where the range ends that is being read, if there is a filter."""
        self._client = Client(url)
        self._subscription: BlockingSubscription | None = None
        self._start: Start = "latest"
        self._pending: deque[Updates | Lost | MalformedLog] = deque()

    @property
    def source(self) -> str:
        """What the server leaves out has no position here: another filter is another source."""
        name = self._dataset or f"qanat:{self.stream}"
        return f"{name}?{hashlib.sha256(self._where.encode()).hexdigest()[:12]}" if self._where else name

    @property
    def identified(self) -> bool:
        """Streams of other servers may have the same name."""
        return bool(self._dataset)

    def leave_out_but(self, where: str) -> None:
        self._leave()
        self._wanted = where

    def _filter(self) -> str:
        """What says that something is missing is nobody's to leave out."""
        asked = " and ".join(f"({each})" for each in (self._where, self._wanted) if each)
        return f"({asked}) or #op = {LOST}" if asked else ""

    def seek(self, start: Start) -> None:
        if self._pending and isinstance(bad := self._pending[0], MalformedLog) and bad.resume == start:
            self._pending.popleft()
            self._start = start
            return
        self._leave()
        self._start = start
        if (
            start == "latest"
        ):  # what is published from now on belongs to it, however late the first read comes
            self._subscribe()

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        if not self._pending:
            self._fetch(wait_s)
        if not self._pending:
            return Updates()
        item = self._pending[0]
        if isinstance(item, MalformedLog):
            raise item  # until somebody seeks to behind it
        self._pending.popleft()
        if isinstance(item, Updates) and len(item) > limit:
            item, rest = _cut(item, limit)
            self._pending.appendleft(rest)
        if item.upto is not None:
            self._start = item.upto
        return item

    def _fetch(self, wait_s: float) -> None:
        try:
            subscription = self._subscription or self._subscribe(wait_s)
            if subscription is None:
                return
            for batch in subscription.take(timeout_s=max(wait_s, 0.001)):
                self._pending.extend(parts_of(batch, self.stream))
                last = _upto(self._pending[-1]) if self._pending else None
                if last is None or last.sequence < batch.last:  # the server left the last ones out
                    self._pending.append(Updates((), Position(batch.last)))
            self._end_range(subscription)
        except EventsLost as lost:
            self._pending.append(Lost(Position(lost.first - 1), Position(lost.last), str(lost)))
        except QanatError:
            self._leave()
            raise

    def _subscribe(self, wait_s: float = 0.0) -> BlockingSubscription | None:
        where, start = self._filter(), self._start
        if where:
            return self._filtered(where, wait_s)
        first = start if isinstance(start, str) else start.sequence + 1
        self._subscription = self._client.subscribe(self.stream, start=first)
        return self._subscription

    def _filtered(self, where: str, wait_s: float) -> BlockingSubscription | None:
        """Range by range: a server says nothing of events that it leaves out, and only where a range ends is
        it known that there was nothing more."""
        if isinstance(self._start, str):
            self._start = self.oldest() if self._start == "earliest" else self.latest()
        first, deadline = self._start.sequence + 1, time.monotonic() + wait_s
        while (end := self.latest().sequence) < first:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(_POLL_S, left))
        self._upto = end
        self._subscription = self._client.read(self.stream, first, end, where=where)
        return self._subscription

    def _end_range(self, subscription: BlockingSubscription) -> None:
        if self._upto is None or subscription.next <= self._upto:
            return
        last = _upto(self._pending[-1]) if self._pending else None
        if last is None or last.sequence < self._upto:
            self._pending.append(Updates((), Position(self._upto)))
        self._close_subscription()

    def oldest(self) -> Position:
        return Position(self._status()["first"] - 1)

    def latest(self) -> Position:
        return Position(self._status()["next"] - 1)

    def divide(self, after: Position, upto: Position, rows: int) -> Position:
        """Anywhere: sequence numbers have no gaps."""
        return min(Position(after.sequence + max(rows, 1)), upto)

    def _status(self) -> dict[str, Any]:
        for status in self._client.ask("streams"):
            if status["stream"] == self.stream:
                found: dict[str, Any] = status
                return found
        raise LocalError(f"there is no stream {self.stream!r} there; `qanat streams` lists those that are")

    def _leave(self) -> None:
        self._pending.clear()
        self._close_subscription()

    def _close_subscription(self) -> None:
        self._upto = None
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            subscription.close()

    def close(self) -> None:
        self._client.close()


def parts_of(batch: Batch, stream: str) -> Iterator[Updates | Lost | MalformedLog]:
    """What a batch of a stream holds, in order: updates, with the stream's sequence numbers for positions,
    what was collected, and events that say they are updates and are none."""
    kinds = np.zeros(batch.count, np.uint8) if batch.kinds is None else batch.kinds
    sort = np.where(kinds == Kind.TOMBSTONE, _GONE, np.where(is_update(batch), _UPDATE, _EVENT))
    sort[is_loss(batch)] = _LOSS
    edges = [0, *(np.flatnonzero(np.diff(sort)) + 1).tolist(), batch.count]
    for start, stop in pairwise(edges):
        if start == stop:
            continue
        part = batch.take(np.arange(start, stop))
        seqs = batch.seqs()[start:stop]
        if sort[start] == _GONE:
            ranges = batch.ranges
            reach = 1 if ranges is None else int(ranges[start])
            yield Lost(Position(int(seqs[0]) - reach), Position(int(seqs[-1])), _COLLECTED)
        elif sort[start] == _LOSS:
            for row, seq in enumerate(seqs.tolist()):
                yield Lost(Position(seq - 1), Position(seq), loss_of(part.payload(row)))
        elif sort[start] == _UPDATE:
            yield from _rebuilt(part, seqs)
        else:
            yield Updates([_rows(part, stream, seqs)])


def _rebuilt(batch: Batch, seqs: np.ndarray[Any, Any]) -> Iterator[Updates | MalformedLog]:
    """Anybody can publish what looks like an update; such an event is found by halves."""
    try:
        yield _numbered(updates_of(batch), seqs)
        return
    except MalformedLog as error:
        if batch.count == 1:
            at = Position(int(seqs[0]))
            told = f"event {seqs[0]} of the stream: {error} (to leave it out, read from position {at})"
            yield MalformedLog(told, position=at, resume=at, original=bytes(batch.payload(0)))
            return
    middle = batch.count // 2
    for rows in (np.arange(middle), np.arange(middle, batch.count)):
        yield from _rebuilt(batch.take(rows), seqs[rows])


def _upto(item: Updates | Lost | MalformedLog) -> Position | None:
    return item.resume if isinstance(item, MalformedLog) else item.upto


def _numbered(updates: Updates, seqs: np.ndarray[Any, Any]) -> Updates:
    runs, at = [], 0
    for run in updates.runs:
        until = at + len(run)
        runs.append(replace(run, sequences=seqs[at:until], indexes=np.zeros(len(run), np.uint32)))
        at = until
    return Updates(runs)


def _rows(batch: Batch, stream: str, seqs: np.ndarray[Any, Any]) -> Run:
    keys = batch.keys()
    names = [Column(KEY, pa.binary(), key=True), Column(PAYLOAD, pa.binary())]
    values: list[pa.Array] = [
        pa.array([b""] * batch.count, pa.binary()) if keys is None else keys.cast(pa.binary()),
        batch.payloads().cast(pa.binary()),
    ]
    for name, arrays in batch.attributes().items():
        plain = [
            values.dictionary_decode() if pa.types.is_dictionary(values.type) else values for values in arrays
        ]
        column = plain[0] if len(plain) == 1 else pc.coalesce(*(values.cast(pa.string()) for values in plain))
        names.append(Column(name, column.type))
        values.append(column)
    table = Table("", "", stream, tuple(names))
    origins = pa.array(batch.source_names or [""], pa.string())
    codes = batch.source_codes()
    return Run(
        table,
        np.full(batch.count, Op.INSERT, np.uint8),
        seqs,
        np.zeros(batch.count, np.uint32),
        batch.times(),
        pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(batch.count, np.int32) if codes is None else codes.astype(np.int32)), origins
        ),
        pa.RecordBatch.from_arrays(values, schema=table.arrow),
    )


def _cut(updates: Updates, limit: int) -> tuple[Updates, Updates]:
    head, tail, left = [], [], max(limit, 1)
    for run in updates.runs:
        taken = min(left, len(run))
        head.append(run.slice(0, taken))
        tail.append(run.slice(taken, len(run)))
        left -= taken
    return Updates(head), Updates(tail)


def _address(url: LogUrl) -> str:
    if not url.name or "/" in url.name:
        raise BadLogUrl(f"{url}: name one stream after the host; write {SHAPES['qanat']}")
    return f"qanat://{url.hosts}"


def open(url: LogUrl, options: Mapping[str, Any]) -> LogReader:
    """A reader of the stream that the URL's path names."""
    return StreamReader(_address(url), url.name, **options)


def check(url: LogUrl, options: Mapping[str, Any]) -> list[Finding]:
    """Whether the server answers, and has the stream."""
    address = _address(url)
    try:
        with Client(address) as client:
            streams = {status["stream"]: status for status in client.ask("streams")}
    except (RemoteError, RequestRefused) as error:
        return [Finding(False, f"{url} answers: {error}", "qanat serve")]
    findings = [Finding(True, f"{address} answers")]
    status = streams.get(url.name)
    if status is None:
        findings.append(
            Finding(
                False, f"there is a stream {url.name}", f"echo hello | qanat pub {url.name} --url {address}"
            )
        )
    else:
        findings.append(
            Finding(True, f"the stream {url.name} has events {status['first']} to {status['next'] - 1}")
        )
    return findings
