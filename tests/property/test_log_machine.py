"""The log against a naive model: append, publish again, GC events, policies, collect, crash, reopen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.tombstones import GC_ATTRIBUTE
from qanat.log import Chunk, LogConfig, Policy, StreamLog
from qanat.log.checker import Event, check_history, check_merged, rows_of
from qanat.log.crash_disk import CrashDisk
from qanat.log.segment_file import HEAD_BYTES

STREAM = stream_id("machine")
KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"\xff\x00"])
COLOURS = st.sampled_from([None, "red", "blue"])
PREDICATES = st.sampled_from(
    [
        "same key",
        "keep last 3",
        "upto 5",
        "upto 20",
        "older than 20us",
        "colour = red",
        "colour in (red, blue)",
        "colour = red or same key",
        "colour = blue and upto 30",
        "exists colour",
        "not exists colour",
        "all",
    ]
)
POLICIES = st.builds(
    Policy,
    by_key=st.booleans(),
    keep_last=st.sampled_from([None, None, 4, 12]),
    age_ms=st.sampled_from([None, None, 1]),
)
ROW = st.tuples(KEYS, COLOURS, st.integers(0, 3000), st.one_of(st.none(), st.none(), PREDICATES))


class LogMachine(RuleBasedStateMachine):
    @initialize(
        policy=POLICIES,
        indexed=st.booleans(),
        keys_max=st.sampled_from([0, 4, 1000]),
        seed=st.integers(0, 99),
    )
    def start(self, policy: Policy, indexed: bool, keys_max: int, seed: int) -> None:
        if policy.by_key:
            keys_max = max(keys_max, 4)
        self.policy = policy
        self.config = LogConfig(
            policy=policy,
            indexed=("colour",) if indexed else (),
            index_keys_max=keys_max,
            segment_bytes=64 * 1024,
            index_stride_bytes=1024,
            rewrite_dead_fraction=0.3,
            rewrite_batch_bytes=2048,
            tail_bytes=4096,
        )
        self.disk = CrashDisk(seed)
        self.published: list[Event] = []
        self.position = 0
        self.position_of: list[int] = []  # of each published event; 0 without a source
        self.open()

    def open(self) -> None:
        self.log = StreamLog.open(self.disk, "s", STREAM, self.config)

    def batch(self, rows: list[tuple[Any, ...]], position: int | None) -> Batch:
        return Batch.build(
            STREAM,
            [b"p%d" % i for i in range(len(rows))],
            keys=[row[0] for row in rows],
            times=[row[2] for row in rows],
            kinds=[Kind.DATA if row[3] is None else Kind.GC for row in rows],
            attributes=[
                {k: v for k, v in (("colour", row[1]), (GC_ATTRIBUTE, row[3])) if v is not None}
                for row in rows
            ],
            source=None if position is None else "writer",
            position=position,
        )

    @rule(rows=st.lists(ROW, min_size=1, max_size=12), again=st.integers(0, 5), sourced=st.booleans())
    def append(self, rows: list[tuple[Any, ...]], again: int, sourced: bool) -> None:
        """Publishes rows; with a source, perhaps again with some that were published before in front."""
        clock = 100 * len(self.published)  # publishers' clocks go on, but not in step
        rows = [(key, colour, clock + jitter, predicate) for key, colour, jitter, predicate in rows]
        if not sourced:
            self.log.append(self.batch(rows, None))
            self.extend(rows, check=True)
            self.position_of += [0] * len(rows)
            return
        again = min(again, self.position)
        repeated: list[tuple[Any, ...]] = [(b"never", None, 0, None)] * again
        appended = self.log.append(self.batch(repeated + rows, self.position + 1 - again))
        assert appended.dropped == again
        self.position_of += range(self.position + 1, self.position + len(rows) + 1)
        self.position += len(rows)
        self.extend(rows, skip=again, check=True)

    @rule(
        rows=st.lists(ROW, min_size=2, max_size=12), again=st.sampled_from([0, 0, 0, 2]), crash=st.booleans()
    )
    def lay_down(self, rows: list[tuple[Any, ...]], again: int, crash: bool) -> None:
        """A file of two batches, laid down by its publisher, becomes a segment; or is copied, if some of it
        is had."""
        clock = 100 * len(self.published)
        rows = [(key, colour, clock + jitter, predicate) for key, colour, jitter, predicate in rows]
        again = min(again, self.position)
        repeated: list[tuple[Any, ...]] = [(b"never", None, 0, None)] * again
        middle = len(rows) // 2
        batches = [
            self.batch(repeated + rows[:middle], self.position + 1 - again),
            self.batch(rows[middle:], self.position + 1 + middle),
        ]
        file = self.disk.open("s/a.staged.tmp")
        file.write(bytes(HEAD_BYTES) + b"".join(bytes(batch.encode()) for batch in batches))
        file.close()
        if crash:  # of the server, before it was told
            self.open()
            assert "a.staged.tmp" not in self.disk.list("s")
            return
        adopted = self.log.adopt("a.staged.tmp")
        if adopted is None:
            for batch in self.log.staged("a.staged.tmp"):
                self.log.append(batch)
            self.log.discard("a.staged.tmp")
        else:
            assert adopted == (len(self.published) + 1, len(self.published) + len(rows), 0) and not again
        assert "a.staged.tmp" not in self.disk.list("s")
        self.position_of += range(self.position + 1, self.position + len(rows) + 1)
        self.position += len(rows)
        self.extend(rows[:middle], skip=again)
        self.extend(rows[middle:], check=True)

    def extend(self, rows: list[tuple[Any, ...]], skip: int = 0, check: bool = False) -> None:
        for i, (key, colour, time_us, predicate) in enumerate(rows):
            attributes = {k: v for k, v in (("colour", colour), (GC_ATTRIBUTE, predicate)) if v is not None}
            kind = Kind.DATA if predicate is None else Kind.GC
            seq = len(self.published) + 1
            self.published.append(Event(seq, b"p%d" % (i + skip), key, time_us, kind, attributes))
        if check:
            assert self.log.next == len(self.published) + 1

    @rule()
    def sync(self) -> None:
        assert self.log.sync() == len(self.published)

    @rule(everything=st.booleans())
    def collect(self, everything: bool) -> None:
        while self.log.collect(4096, everything=everything).more:
            pass
        if everything:
            self.log.collect(everything=True)
            check_merged(self.rows(1))

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        durable = self.log.durable
        if power:
            self.disk.crash()
        self.open()
        survived = self.log.next - 1
        assert survived >= durable if power else survived == len(self.published)
        assert survived <= len(self.published)
        del self.published[survived:]
        del self.position_of[survived:]
        self.position = max(self.position_of, default=0)
        assert self.log.positions().get("writer", (0, 0))[0] == self.position

    @precondition(lambda self: self.published)
    @rule(start=st.integers(1, 10_000))
    def read_from_somewhere(self, start: int) -> None:
        start = 1 + start % len(self.published)
        check_history(self.published, self.rows(start), self.policy, start=start)

    def rows(self, start: int) -> list[Any]:
        batches = []
        while start < self.log.next:
            chunk = self.log.read(start, 3000, upto=self.log.next - 1)
            assert isinstance(chunk, Chunk) and chunk.first <= start <= chunk.last
            batches += list(chunk.batches())
            start = chunk.last + 1
        return rows_of(batches)

    @invariant()
    def everything_is_there_or_rightly_collected(self) -> None:
        if hasattr(self, "log"):
            check_history(self.published, self.rows(1), self.policy)
            assert self.log.first == 1


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
pytestmark = [pytest.mark.paper("S2"), pytest.mark.paper("S3"), pytest.mark.paper("S10")]
