"""What tasks have laid down goes into the streams, once: by the driver, when Spark has said which tasks
count.

Rows are published under one source, the sink, at positions `batch × 2³² + row`: `batch` is the number of the
micro-batch (or the version of a write) and the last row of a batch has the row number 2³² - 1. So a stream
itself says which batch it has, and whether all of it.

1. A batch that fits into one batch of events is published as that: a stream has all of it or nothing.
2. Otherwise a *plan* is written first, which says which pieces in which order make up the batch, and only one
can ever be
   written. Whoever finds it, after any crash, publishes these pieces and no others: a batch that is computed
   again may have its rows in
   another order, or be cut into other tasks.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from mmap import MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from qanat.client.encoded import Laid, dense_flight, jumping_flight
from qanat.client.flight import Flight
from qanat.client.rows import SMALLEST_BYTES
from qanat.client.staging import HEAD_BYTES
from qanat.events.batch import HEADER_BYTES, Batch, decode_all, number, peek
from qanat.events.durable import make, make_folder, replace
from qanat.events.join import concat
from qanat.events.kept import Damaged, Kept, sealed, unsealed
from qanat.events.layout import ROWS_LIMIT
from qanat.events.position import Position
from qanat.pipeline.sink.staging import Piece, Staging, remove
from qanat.pipeline.source.clients import client_of
from qanat.pipeline.source.offsets import Disagreement
from qanat.runtime.patience import PATIENCE_S

END = 0xFFFF_FFFF
"""The row number of a batch's last row."""
_WHOLE_BYTES = 4 << 20
"""Up to here a batch of Spark becomes one batch of events: half of what a frame may have, and a copy of it is
a millisecond."""
_POPULATE_READ = 22
"""MADV_POPULATE_READ of linux/mman.h, all of a file's pages at once: they are in memory, and to fault them in
one by one would cost more than to copy them. An older kernel does not know it."""
_PLAN, _REACHED = "plan.json", "reached.json"


class Held(NamedTuple):
    """What a stream has of a sink."""

    batch: int
    row: int

    @staticmethod
    def of(position: Position) -> "Held":
        return Held(position.sequence >> 32, position.sequence & END)

    @property
    def whole(self) -> bool:
        return self.row == END or not self.batch


class _Plan(msgspec.Struct, frozen=True):
    """The pieces of a batch, in order."""

    source: str
    batch: int
    pieces: list[tuple[str, int, int, str]]
    """Stream, rows, bytes, file."""
    heads: list[bytes] = []
    """Of the batches of each piece; see `Piece`. Empty where files are without room for a segment's head."""

    @staticmethod
    def of(source: str, batch: int, pieces: "Sequence[Piece]") -> "_Plan":
        places = [(piece.stream, piece.rows, piece.size, piece.file) for piece in pieces]
        return _Plan(source, batch, places, [piece.heads for piece in pieces])

    def all(self) -> list[Piece]:
        heads = self.heads or [b""] * len(self.pieces)
        return [
            Piece(stream, rows, size, file=file, heads=mine)
            for (stream, rows, size, file), mine in zip(self.pieces, heads, strict=True)
        ]


class Publication:
    """One batch of a sink. `what` is how a person knows it."""

    def __init__(
        self,
        url: str,
        source: str,
        batch: int,
        staging: Staging,
        what: str,
        durability: str = "",
        patience: float = PATIENCE_S,
    ) -> None:
        self.url, self.source, self.batch, self.what = url, source, batch, what
        self._durability, self._patience = durability, patience
        self._home = staging.of_source(source)
        self._folder = staging.of(source, batch)
        self._mine = False
        """Whether the plan is ours, made now: then nobody has published any of its files before, and they may
        be given away."""
        self._ends: dict[Flight, str] = {}
        """With which batch of events a piece ends, and its file."""

    def publish(self, pieces: Sequence[Piece]) -> None:
        """All of it, or what is missing of it; returns when it is stored."""
        plan = self._plan()
        if plan is not None:
            pieces = plan.all()
        by_stream: dict[str, list[Piece]] = {}
        for piece in pieces:
            by_stream.setdefault(piece.stream, []).append(piece)
        if not by_stream:
            return
        reached = self._reached()
        with client_of(self.url, self.source, self._durability, self._patience) as client:
            held = {name: self._held(name, client.position(name), reached) for name in by_stream}
            done = {name for name, found in held.items() if found == (self.batch, END)}
            begun = {name for name, found in held.items() if found.batch == self.batch}
            if plan is None and begun and len(done) < len(held):
                raise self._no_plan(sorted(begun))
            if plan is None and not begun:
                if len(by_stream) == 1 and self._is_small(pieces):
                    (stream,) = by_stream
                    client.publish_flights(stream, [self._whole(pieces)])
                    done.add(stream)
                else:
                    by_stream = self._write_plan(by_stream)
            for stream, mine in by_stream.items():
                if stream not in done:
                    found = held.get(stream) or self._held(stream, client.position(stream), reached)
                    have = found.row + 1 if found.batch == self.batch else 0
                    client.publish_flights(stream, self._flights(mine, have), self._kept)
                client.leave(
                    stream
                )  # a client that is kept would open it again at any server that comes back there
        self._finish(reached, by_stream)

    # --- what the stream has ----------------------------------------------------------------------------

    def _held(self, stream: str, position: Position, reached: dict[str, int]) -> Held:
        held = Held.of(position)
        if position.sequence < reached.get(stream, 0) or (held.batch < self.batch and not held.whole):
            had = Held.of(Position(reached.get(stream, 0)))
            raise Disagreement(
                f"stream {stream!r} at {self.url} has lost rows of {self.source!r} that it had stored: it has"
                f" batch {held.batch}{'' if held.whole else f' up to row {held.row + 1}'}, and had batch"
                f" {max(had.batch, self.batch - 1)}. It was made anew or set back; write into another stream,"
                " or begin anew with another checkpoint"
            )
        if held.batch > self.batch:
            raise Disagreement(
                f"stream {stream!r} at {self.url} has batch {held.batch} of {self.source!r} already, and this"
                f" is {self.what}. The checkpoint was set back, or the number was used before: go back to the"
                " newest checkpoint, or take another name"
            )
        return held

    def _no_plan(self, begun: list[str]) -> Disagreement:
        return Disagreement(
            f"stream {begun[0]!r} at {self.url} has a part of {self.what} of {self.source!r}, and the folder"
            f" {self._folder}, where the rest of it should wait, has no plan for it: it was cleared, or is"
            " another one than before. Bring it back, or begin anew with another name or checkpoint: its"
            " rows up to here would then come twice"
        )

    # --- what is published ------------------------------------------------------------------------------

    @staticmethod
    def _is_small(pieces: Sequence[Piece]) -> bool:
        return (
            sum(piece.size for piece in pieces) <= _WHOLE_BYTES
            and sum(piece.rows for piece in pieces) <= ROWS_LIMIT
        )

    def _whole(self, pieces: Sequence[Piece]) -> Flight:
        batches: list[Batch] = []
        first = 1
        for batch in (each for piece in pieces for each in self._batches(piece)):
            data = bytearray(batch.encode())
            number(data, first)
            batches.append(Batch.decode(data))
            first += batch.count
        whole = concat(batches)
        return jumping_flight(whole, self.source, self._sequences(0, whole.count, whole.count))

    def _sequences(self, row: int, count: int, total: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        sequences = np.arange(row, row + count, dtype=np.uint64) + np.uint64(self.batch << 32)
        if row + count == total:
            sequences[-1] = self.batch << 32 | END
        return sequences

    def _flights(self, pieces: Sequence[Piece], have: int) -> Iterator[Flight | Laid]:
        """The batches behind the first `have` rows. The first and the last jump to their positions; between
        them all is dense, and files that have no other reader are handed over as they are."""
        total, row = sum(piece.rows for piece in pieces), 0
        for piece in pieces:
            if row + piece.rows <= have and row + piece.rows < total:
                row += piece.rows  # its file may be gone
                continue
            given = self._is_given(piece) and max(have, 1) <= row and row + piece.rows < total
            flights: list[Flight] = []
            for batch in self._batches(piece, copied=not given):
                begin, row = row, row + batch.count
                if row <= have and row < total:
                    continue
                if begin == 0 or row == total:
                    places = self._sequences(begin, batch.count, total)
                    flights.append(jumping_flight(batch, self.source, places))
                else:
                    flights.append(dense_flight(batch, self.source, (self.batch << 32) + begin))
            self._ends[flights[-1]] = piece.file
            if given:
                yield Laid(str(self._folder / piece.file), flights)
            else:
                yield from flights

    def _is_given(self, piece: Piece) -> bool:
        return self._mine and bool(piece.heads) and piece.size >= SMALLEST_BYTES

    def _kept(self, flight: Flight) -> None:
        """Nobody will ask for a piece that a stream has for good. Its memory is used again at once, while the
        rest is published."""
        file = self._ends.pop(flight, "")
        if file:
            (self._folder / file).unlink(missing_ok=True)

    def _batches(self, piece: Piece, *, copied: bool = True) -> Iterator[Batch]:
        """As their task wrote them: a log that took the file over has written to it, but never to more than
        their headers, and behind them."""
        if not piece.file:
            yield from decode_all(piece.data, verify=False)
            return
        path = self._folder / piece.file
        begin = HEAD_BYTES if piece.heads else 0
        try:
            with open(path, "rb") as file:
                found, size = os.fstat(file.fileno()).st_size, begin + piece.size
                if found < size:
                    raise Disagreement(
                        f"{path}, a piece of {self.what} of {self.source!r}, has {found} of {size} bytes"
                    )
                mapped = mmap(file.fileno(), size, flags=MAP_PRIVATE, prot=PROT_READ | PROT_WRITE)
        except OSError as error:
            raise Disagreement(
                f"{path}, a piece of {self.what} of {self.source!r}, is gone: {error}"
            ) from None
        if copied:
            with suppress(OSError):
                mapped.madvise(_POPULATE_READ)
        at = begin
        for i in range(0, len(piece.heads), HEADER_BYTES):
            head = piece.heads[i : i + HEADER_BYTES]
            mapped[at : at + HEADER_BYTES] = head
            at += peek(head).size
        yield from decode_all(memoryview(mapped)[begin:], verify=False)

    # --- the plan ---------------------------------------------------------------------------------------

    @property
    def is_planned(self) -> bool:
        return (self._folder / _PLAN).exists()

    def _plan(self) -> _Plan | None:
        path = self._folder / _PLAN
        try:
            content = path.read_bytes()
            found = unsealed(content)
            if found is None and not content.startswith(b"{"):  # as an earlier version wrote it
                raise Damaged("it is not what was written; restore it from a copy")
            return msgspec.json.decode(content if found is None else found[1], type=_Plan)
        except FileNotFoundError:
            return None
        except (OSError, Damaged, msgspec.DecodeError) as error:
            raise Disagreement(
                f"the plan {path} for {self.what} of {self.source!r} cannot be read: {error}"
            ) from None

    def _write_plan(self, by_stream: dict[str, list[Piece]]) -> dict[str, list[Piece]]:
        """Makes the plan, unless somebody else has made one meanwhile; the pieces of the one that counts."""
        make_folder(self._folder)
        planned = [self._in_file(piece) for pieces in by_stream.values() for piece in pieces]
        plan = _Plan.of(self.source, self.batch, planned)
        self._mine = make(self._folder / _PLAN, sealed(msgspec.json.encode(plan)))
        counts: dict[str, list[Piece]] = {}
        for piece in (self._plan() or plan).all():
            counts.setdefault(piece.stream, []).append(piece)
        return counts

    def _in_file(self, piece: Piece) -> Piece:
        if piece.file:
            return piece
        name = f"inline-{uuid.uuid4().hex}.batches"
        replace(self._folder / name, piece.data)
        return Piece(piece.stream, piece.rows, piece.size, file=name)

    # --- afterwards -------------------------------------------------------------------------------------

    def _reached(self) -> dict[str, int]:
        """The highest position that each stream was seen to have."""
        kept = Kept(self._home / _REACHED, shared=True)
        try:
            data = kept.read()
            return {} if data is None else msgspec.json.decode(data, type=dict[str, int])
        except (OSError, Damaged, msgspec.DecodeError) as error:
            raise Disagreement(
                f"{kept.path}, how far streams had {self.source!r}, cannot be read: {error}"
            ) from None

    def _finish(self, reached: dict[str, int], streams: "dict[str, list[Piece]]") -> None:
        if self.source.startswith("~"):
            remove(self._home)
            return
        make_folder(self._home)
        position = self.batch << 32 | END
        now = msgspec.json.encode(reached | dict.fromkeys(streams, position))
        Kept(self._home / _REACHED, shared=True).write(now)
        self.clear()

    def clear(self) -> None:
        """Removes what waits for this batch, and what former ones have left behind."""
        with suppress(OSError):
            for entry in os.scandir(self._home):
                if entry.name.isdecimal() and int(entry.name) <= self.batch:
                    remove(Path(entry.path))
