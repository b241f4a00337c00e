"""How much one subscriber takes, and how late updates are as it comes near its limit (Wormhole, Fig. 5).

In the paper many publishers send to one subscriber until it has enough. Here one publisher stands for them
all: what it reads of a log it reads once, before it begins, and then sends the same batches again and again,
as fast as the subscriber takes them or as a pace says. So what reading costs is not in it, and the subscriber
is what is measured.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from qanat.capture.reader import Lost
from qanat.capture.sharding import Sharding
from qanat.events.batch import Batch
from qanat.events.position import Position
from qanat.operate.processes import Worker
from qanat.protocols.publisher.reading import Locate, Located, PublisherRequest, ReadLog, WasRead
from qanat.publisher.logs import Readers, pieces_of
from qanat.publisher.node import PublisherNode
from qanat.studies.publishing import Came, Errand, publisher, publisher_text

UPDATE_BYTES = 500
VALUE_BYTES = 215
"""The row's value that makes a line of JSON so long."""
IDLE_S = 0.05
_PACED_BYTES = 1 << 20


class Pace(msgspec.Struct, frozen=True):
    """`steps` are updates a second, for `step_s` each; none: as fast as they are taken."""

    steps: tuple[float, ...] = ()
    step_s: float = 0.0

    @property
    def total(self) -> int:
        """Updates that are written in all."""
        return int(sum(self.steps) * self.step_s)

    def due_s(self, updates: int) -> float:
        """When so many have been written, from the beginning on."""
        passed = 0.0
        for rate in self.steps:
            if updates <= rate * self.step_s:
                return passed + updates / rate
            updates -= int(rate * self.step_s)
            passed += self.step_s
        return passed


class PreparedReaders(Readers):
    """Answers from memory. Positions count updates: the n-th of all is n, though its batch was sent before
    under another name."""

    def __init__(
        self,
        batches: Sequence[Batch],
        pace: Pace,
        began: Callable[[], None],
        tell: Callable[[PublisherRequest], None],
    ) -> None:
        self._batches, self._pace, self._began, self._tell = batches, pace, began, tell
        self._loop = asyncio.get_running_loop()
        self._start = 0.0

    @property
    def problem(self) -> str:
        return ""

    def read(self, asked: ReadLog) -> None:
        if not self._start:
            self._start = time.monotonic()
            self._began()
        batch = self._batches[asked.after.index % len(self._batches)]
        upto = asked.after.sequence + batch.count
        answer = WasRead(asked.caravan, asked.after, Position(upto, asked.after.index + 1), batch, ())
        if not self._pace.steps:
            self._tell(answer)
        elif upto > self._pace.total:
            nothing = WasRead(asked.caravan, asked.after, asked.after, None)
            self._loop.call_later(IDLE_S, self._tell, nothing)
        else:
            wait_s = self._start + self._pace.due_s(upto) - time.monotonic()
            self._loop.call_later(wait_s, self._tell, answer) if wait_s > 0 else self._tell(answer)

    def locate(self, asked: Locate) -> None:
        self._tell(Located(asked.application, asked.start, Position(0, 0)))

    def measure(self) -> None:
        """Of interest to copies."""

    def close_one(self, caravan: int) -> None:
        """There is nothing to close."""

    def close(self) -> None:
        """Nor here."""


class PreparedNode(PublisherNode):
    """`rows` of the log are read before it begins."""

    def __init__(self, loaded: Any, rows: int, pace: Pace, note: str) -> None:
        super().__init__(loaded)
        self._rows, self._pace, self._note = rows, pace, Path(note)

    def make_readers(self, tell: Callable[[PublisherRequest], None]) -> Readers:
        sharding = Sharding.parse(self.settings.log.sharding)
        # As fast as it goes they are what a replay sends; at a pace, what is new, of which less comes at
        # once.
        chunk_bytes = _PACED_BYTES if self._pace.steps else self.settings.log.chunk_bytes
        batches: list[Batch] = []
        with closing(self._open()) as reader:
            reader.seek("earliest")
            had = 0
            while had < self._rows:
                found = reader.read(self._rows - had, 10)
                if isinstance(found, Lost):
                    raise RuntimeError(f"the log of the experiment is not whole: {found.reason}")
                had += len(found)
                pieces = pieces_of(found, Position(0, 0), sharding, reader.source, chunk_bytes, ())
                batches += [piece.batch for piece in pieces if piece.batch is not None]
        return PreparedReaders(batches, self._pace, self._begin, tell)

    def _begin(self) -> None:
        self._note.write_text(str(time.monotonic()))


def take_all(log: str, rows: int, sink: Worker, updates: int) -> float:
    """Updates a second that one subscriber takes as fast as it can."""
    came, _ = _run(log, rows, sink, updates, Pace())
    begin = came.deliveries[0][0]
    return came.since(begin) / (came.ended - begin)


class Step(msgspec.Struct, frozen=True):
    """While so many updates a second were written."""

    offered: float
    taken: float
    latency_ms: float
    """Mean over all updates that were written in it."""


def climb(log: str, rows: int, sink: Worker, pace: Pace) -> list[Step]:
    """One subscriber, to which more and more is sent."""
    per_batch = rows  # at least: the last batch may not fit in the total
    came, began = _run(log, rows, sink, max(1, pace.total - per_batch), pace)
    edges = [number * pace.step_s for number in range(len(pace.steps) + 1)]
    late_s = [0.0] * len(pace.steps)
    written = [0] * len(pace.steps)
    taken = [0] * len(pace.steps)
    seen = 0
    for at, _, count in came.deliveries:
        middle = pace.due_s(seen + count // 2)
        seen += count
        number = min(int(middle / pace.step_s), len(pace.steps) - 1)
        late_s[number] += (at - began - middle) * count
        written[number] += count
        now = at - began
        if now < edges[-1]:
            taken[int(now / pace.step_s)] += count
    return [
        Step(rate, taken[number] / pace.step_s, 1000 * late_s[number] / max(1, written[number]))
        for number, rate in enumerate(pace.steps)
    ]


def _run(log: str, rows: int, sink: Worker, updates: int, pace: Pace) -> tuple[Came, float]:
    with tempfile.TemporaryDirectory(prefix="qanat-w15-") as folder:
        note = Path(folder, "began")
        make = partial(PreparedNode, rows=rows, pace=pace, note=str(note))
        text = publisher_text(log, ["a"], caravans_max=1)
        with publisher(Path(folder), text, make) as (url, _):
            sink.tell(Errand(application="a", urls=(url,), updates=updates))
            came: Came = sink.wait()
            return came, float(note.read_text())
