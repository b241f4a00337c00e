"""From the messages of a `pgoutput` stream to runs of updates with their positions; no connection inside.

Messages are taken many at a time. What is not a row, nor begins or ends a transaction, is rare and cuts them
into spans; within a span rows, transactions and positions are found with NumPy, so the cost of a message is
that of a few array elements.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.postgres import messages
from qanat.capture.postgres.decode import Ints, Payloads, must_fit
from qanat.capture.postgres.messages import EPOCH_US, Body, Commit, Kind, Relation
from qanat.capture.postgres.rows import Format, Places, format_of, runs
from qanat.capture.postgres.spool import Spool, Spools
from qanat.capture.updates import Op, Run


class Boundary(NamedTuple):
    """Everything that was committed before this LSN has been given."""

    lsn: int


class Marker(NamedTuple):
    """A message that somebody wrote into the log: `sequence` is where its transaction was committed, or where
    it lies outside of any."""

    sequence: int
    prefix: str
    content: bytes


Item: TypeAlias = Run | Boundary | Marker

_ROWS = (Kind.INSERT, Kind.UPDATE, Kind.DELETE)
_PLAIN = np.zeros(256, bool)
_PLAIN[[*_ROWS, Kind.BEGIN, Kind.COMMIT, Kind.ORIGIN]] = True
_PARTS = (Kind.STREAM_START, Kind.STREAM_STOP, Kind.STREAM_COMMIT, Kind.STREAM_ABORT)
_KNOWN = np.zeros(256, bool)
_KNOWN[list(Kind)] = True


class Transaction(NamedTuple):
    """The one that is being read; `rows` of it have been given."""

    lsn: int
    time_us: int
    xid: int
    rows: int


class Transactions(NamedTuple):
    """Those of a span, in order."""

    lsns: npt.NDArray[np.uint64]
    times_us: Ints
    xids: Ints
    rows: Ints
    """Given before this span."""

    @classmethod
    def of(cls, one: Transaction) -> "Transactions":
        number = partial(np.array, dtype=np.int64)
        return cls(
            np.array([one.lsn], np.uint64), number([one.time_us]), number([one.xid]), number([one.rows])
        )

    def following(self, one: Transaction | None) -> "Transactions":
        if one is None:
            return self
        first = self.of(one)
        return Transactions(
            np.concatenate([first.lsns, self.lsns]),
            np.concatenate([first.times_us, self.times_us]),
            np.concatenate([first.xids, self.xids]),
            np.concatenate([first.rows, self.rows]),
        )

    def last(self, more: int) -> Transaction:
        """The last one, with `more` rows given."""
        return Transaction(
            int(self.lsns[-1]), int(self.times_us[-1]), int(self.xids[-1]), int(self.rows[-1]) + more
        )

    def places(self, owner: Ints) -> Places:
        """For rows that belong to these transactions, in order."""
        first = np.searchsorted(owner, np.arange(len(self.lsns)))
        indexes = np.arange(len(owner)) - first[owner] + self.rows[owner]
        names = pa.array(self.xids).cast(pa.string())
        codes = pa.DictionaryArray.from_arrays(pa.array(owner.astype(np.int32)), names)
        return Places(self.lsns[owner], indexes.astype(np.uint32), self.times_us[owner], codes)


class Assembler:
    """What a stream has said so far: tables, types, the transaction that is open, and large ones in parts."""

    def __init__(
        self,
        database: str,
        primary_key: Callable[[Relation], frozenset[str] | None] = lambda _: None,
        codec: str = "",
    ) -> None:
        """`codec`: in which texts are, if not in UTF-8."""
        self._database = database
        self._codec = codec
        self._primary_key = primary_key
        self._formats: dict[int, Format] = {}
        self._types: dict[int, str] = {}
        self._open: Transaction | None = None
        self._spools = Spools()
        self._part: Spool | None = None

    @property
    def between(self) -> bool:
        """No transaction is half given."""
        return self._open is None

    def close(self) -> None:
        self._spools.close()

    def feed(self, payloads: list[bytes]) -> Iterator[Item]:
        """The messages must be gone through to the end before the next ones are fed."""
        if not payloads:
            return
        batch = Payloads.joined(payloads)
        if not _KNOWN[batch.kinds].all():
            unknown = bytes(batch.kinds[~_KNOWN[batch.kinds]][:1])
            raise MalformedLog(f"pgoutput has no message of type {unknown!r}, or none that this reader knows")
        for start, stop, plain in _spans(batch):
            if self._part is not None and batch.kinds[start] not in _PARTS:
                self._part.write(batch, start, stop)
            elif plain:
                yield from self._span(batch, start, stop, 0, frozenset())
            else:
                yield from self._control(batch.message(start))

    def _control(self, payload: bytes) -> Iterator[Item]:
        kind, body = payload[0], Body(payload, 1, self._codec)
        if (self._part is not None) != (kind == Kind.STREAM_STOP) and kind in _PARTS:
            raise MalformedLog("a part of a large transaction begins or ends inside another part")
        match kind:
            case Kind.STREAM_START:
                if self._open is not None:
                    raise MalformedLog("a part of a large transaction began inside another transaction")
                xid = body.number(">I")
                self._part = self._spools.start(xid, first=bool(body.number(">B")))
            case Kind.STREAM_STOP:
                self._part = None
            case Kind.STREAM_ABORT:
                self._spools.abort(*messages.stream_abort(body))
            case Kind.STREAM_COMMIT:
                yield from self._replay(*messages.stream_commit(body))
            case _:
                yield from self._described(kind, body)

    def _described(self, kind: int, body: Body) -> Iterator[Item]:
        match kind:
            case Kind.RELATION:
                relation = messages.relation(body)
                key = self._primary_key(relation) if relation.identity == "f" else None
                self._formats[relation.id] = format_of(
                    relation, self._types, self._database, key, self._codec
                )
            case Kind.TYPE:
                named = messages.type_name(body)
                self._types[named.id] = named.name
            case Kind.TRUNCATE:
                for table in messages.truncate(body).relations:
                    yield self._truncated(table)
            case _:
                said = messages.message(body)
                sequence = self._open.lsn if self._open is not None and said.transactional else said.lsn
                yield Marker(sequence, said.prefix, said.content)

    def _truncated(self, table: int) -> Run:
        form = self._formats.get(table)
        if form is None or self._open is None:
            raise MalformedLog(f"the table with number {table} was emptied before it was described")
        where = Transactions.of(self._open).places(np.zeros(1, np.int64))
        self._open = self._open._replace(rows=self._open.rows + 1)
        ops = np.array([Op.TRUNCATE], np.uint8)
        return Run(form.table, ops, where.sequences, where.indexes, where.times_us, where.transactions)

    def _replay(self, xid: int, commit: Commit) -> Iterator[Item]:
        """A large transaction has been committed: now its parts count."""
        if self._open is not None:
            raise MalformedLog("a large transaction was committed inside another transaction")
        spool = self._spools.take(xid)
        try:
            self._open = Transaction(commit.lsn, commit.time_us, xid, 0)
            aborted = frozenset(spool.aborted)
            for batch in spool.parts():
                for start, stop, plain in _spans(batch):
                    if plain:
                        yield from self._span(batch, start, stop, 4, aborted)
                        continue
                    kind, body = int(batch.kinds[start]), Body(batch.message(start), 1, self._codec)
                    if body.number(">I") not in aborted or kind in (Kind.RELATION, Kind.TYPE):
                        yield from self._described(kind, body)
            self._open = None
        finally:
            spool.close()
        yield Boundary(commit.end)

    def _span(
        self, batch: Payloads, start: int, stop: int, prefix: int, aborted: frozenset[int]
    ) -> Iterator[Item]:
        """Rows, and where transactions begin and end."""
        kinds = batch.kinds[start:stop]
        begins = np.flatnonzero(kinds == Kind.BEGIN)
        commits = np.flatnonzero(kinds == Kind.COMMIT)
        if prefix and (len(begins) or len(commits)):
            raise MalformedLog("a transaction begins inside a large one")
        inside = int(self._open is not None)
        _must_alternate(begins, commits, inside)
        transactions = _begun(batch, begins + start).following(self._open)
        rows = np.flatnonzero(np.isin(kinds, _ROWS))
        if aborted and len(rows):
            at = batch.starts[rows + start] + 1
            must_fit(at, 4, batch.ends[rows + start])
            rows = rows[~np.isin(batch.u32(at), list(aborted))]
        begun = np.searchsorted(begins, rows) + inside
        if (begun != np.searchsorted(commits, rows) + 1).any():
            raise MalformedLog("a row came outside of any transaction")
        owner = begun - 1
        ended = inside + len(begins) == len(commits)
        if ended or not len(transactions.lsns):
            self._open = None
        else:
            self._open = transactions.last(int((owner == len(transactions.lsns) - 1).sum()))
        if len(rows):
            yield from runs(batch, rows + start, prefix, self._formats, transactions.places(owner))
        if ended and len(commits):
            yield Boundary(_end(batch, int(commits[-1]) + start))


def _spans(batch: Payloads) -> Iterator[tuple[int, int, bool]]:
    """Where to cut: spans of plain messages, and others one by one; each with where it begins and ends."""
    start = 0
    for cut in np.flatnonzero(~_PLAIN[batch.kinds]).tolist():
        if cut > start:
            yield start, cut, True
        yield cut, cut + 1, False
        start = cut + 1
    if start < len(batch.kinds):
        yield start, len(batch.kinds), True


def _must_alternate(begins: Ints, commits: Ints, inside: int) -> None:
    order = np.argsort(np.concatenate([begins, commits]))
    if ((order < len(begins)) != ((np.arange(len(order)) + inside) % 2 == 0)).any():
        raise MalformedLog("a transaction begins before another ended, or ends without having begun")


def _begun(batch: Payloads, begins: Ints) -> Transactions:
    at = batch.starts[begins]
    if (at + 21 != batch.ends[begins]).any():
        raise MalformedLog("the beginning of a transaction in pgoutput is not 21 bytes long")
    times_us = batch.u64(at + 9).view(np.int64) + EPOCH_US
    return Transactions(batch.u64(at + 1), times_us, batch.u32(at + 17), np.zeros(len(at), np.int64))


def _end(batch: Payloads, number: int) -> int:
    at = batch.starts[number : number + 1]
    if int(batch.ends[number] - at[0]) != 26:
        raise MalformedLog("the end of a transaction in pgoutput is not 26 bytes long")
    return int(batch.u64(at + 10)[0])
