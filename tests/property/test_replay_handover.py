"""Whatever server and archive do meanwhile, a replay gives every event once and in order, or says exactly
what nobody has."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.integration.archiving import ArrowTables, MemoryStorage
from tests.waiting import run

from qanat.client import AsyncClient, EventsLost
from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.event import Event, events
from qanat.events.filters import parse
from qanat.events.tombstones import GC_ATTRIBUTE, from_sequence
from qanat.log import Chunk, LogConfig, StreamLog
from qanat.log.checker import Event as Published
from qanat.log.checker import collects
from qanat.log.config import Policy
from qanat.log.disk_memory import MemoryDisk
from qanat.pipeline.archive.clean import clean
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import Range
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.tidy import tidy
from qanat.pipeline.columns import arrow_of
from qanat.pipeline.replay.row_groups import passing
from qanat.pipeline.replay.settings import ReplaySettings
from qanat.pipeline.replay.subscription import AsyncReplay
from qanat.wire.streams import Seen

pytestmark = pytest.mark.paper("D6")

STREAM = "s"
QUICK = ReplaySettings(threads=2, ahead_bytes=0, batch_bytes=20_000, handover_rows=5)


class Served:
    """A server's side: a log that keeps two segments, and what a client sees of it."""

    name, region, _record = "reader", "", None

    def __init__(self) -> None:
        config = LogConfig(
            segment_bytes=64 * 1024, retain_bytes=100_000, mode="interval", rewrite_dead_fraction=0.2
        )
        self.log = StreamLog.open(MemoryDisk(), "s", stream_id(STREAM), config)
        self.published: list[Published] = []

    def publish(self, rows: list[tuple[bytes, str | None]]) -> None:
        count = len(self.published)
        payloads = [b"%03000d" % (count + i) for i in range(len(rows))]
        self.log.append(
            Batch.build(
                stream_id(STREAM),
                payloads,
                keys=[key for key, _ in rows],
                time_us=1000 * count + 1,
                kinds=[Kind.GC if predicate else Kind.DATA for _, predicate in rows],
                attributes=[
                    {GC_ATTRIBUTE: predicate} if predicate else {"n": i}
                    for i, (_, predicate) in enumerate(rows)
                ],
                source="writer",
                position=count + 1,
            )
        )
        for i, (key, predicate) in enumerate(rows):
            attributes: dict[str, object] = {GC_ATTRIBUTE: predicate} if predicate else {"n": i}
            kind = Kind.GC if predicate else Kind.DATA
            self.published.append(
                Published(count + i + 1, payloads[i], key, 1000 * count + 1, kind, attributes)
            )

    async def look(self, stream: str, start: Any) -> Seen:
        log = self.log
        at = {"earliest": log.first, "latest": log.next}.get(start, start)
        return Seen(1, at, log.first, log.next - 1, log.next - 1, log.born_us, "")

    def subscribe(self, stream: str, *, start: int, where: str, via: str) -> Live:
        return Live(self.log, start, where)


class AtEnd(Exception):
    """Where a subscription would wait for what is still to come."""


class Live:
    """A subscription at that server."""

    way, recording = "server", None

    def __init__(self, log: StreamLog, start: int, where: str) -> None:
        self._log, self.next = log, start
        self._filter = parse(where) if where else None

    async def confirmed(self) -> Live:
        return self

    async def close(self) -> None:
        pass

    async def take(self) -> list[Batch]:
        if self.next == self._log.next:
            raise AtEnd
        chunk = self._log.read(self.next, 30_000)
        if not isinstance(chunk, Chunk):
            lost = EventsLost(STREAM, self.next, chunk.last)
            self.next = chunk.last + 1
            raise lost
        batches = [from_sequence(batch, self.next) for batch in chunk.batches()]
        self.next = batches[-1].last + 1
        return batches if self._filter is None else [passing(batch, self._filter) for batch in batches]


class Story:
    """One history: what was published, archived, dropped, and read."""

    def __init__(self, where: str) -> None:
        self.served = Served()
        self.history = History(MemoryStorage(), STREAM)
        self.writer = self.history.begin("append")
        self.tables = ArrowTables(row_group=7)
        client = cast(AsyncClient, self.served)
        self.replay = AsyncReplay(client, "unused", STREAM, start=1, where=where, settings=QUICK)
        self.replay._history = self.history
        self.rows: list[Event] = []
        self.lost: list[Range] = []

    def archive(self) -> None:
        """All that is new, and what is gone as lost."""
        log, at = self.served.log, self.writer.manifest.next or 1
        if at < log.first:
            self.writer.append(lost=[Range(at, log.first - 1)])
            at = log.first
        tables = []
        end = log.next
        while at < end:
            chunk = log.read(at, 30_000, upto=end - 1)
            assert isinstance(chunk, Chunk)
            batches = [from_sequence(batch, at) for batch in chunk.batches()]
            tables.append([arrow_of(STREAM, batch) for batch in batches])
            at = batches[-1].last + 1
        if tables:
            first = self.writer.manifest.next or 1
            self.writer.append(
                self.tables.write(self.writer, tables, first, end - 1), identity=str(log.born_us)
            )

    def tidy(self) -> None:
        list(tidy(self.tables, self.history, ArchiveSettings()))
        clean(self.history, 0, young_ms=0, in_flight_ms=1 << 40)

    async def take(self) -> None:
        try:
            for batch in await self.replay.take():
                self.rows += events(batch)
        except AtEnd:
            pass
        except EventsLost as lost:
            have = self.history.newest().complete()
            for seq in (lost.first, lost.last):
                assert seq < self.served.log.first and not any(r.first <= seq <= r.last for r in have)
            self.lost.append(Range(lost.first, lost.last))

    def check(self, where: str) -> None:
        published, passes = self.served.published, parse(where) if where else None
        covered: list[int] = []
        for row in self.rows:
            covered += range(row.seq - row.range + 1, row.seq + 1)
            if row.kind is not Kind.TOMBSTONE:
                was = published[row.seq - 1]
                assert (row.kind, row.key, row.payload, row.time_us) == (
                    was.kind,
                    was.key,
                    was.payload,
                    was.time_us,
                )
                assert row.attributes == was.attributes
        lost = [seq for gone in self.lost for seq in range(gone.first, gone.last + 1)]
        assert len(covered) == len(set(covered)) and covered == sorted(covered)
        assert not set(covered) & set(lost) and lost == sorted(lost)
        missing = set(range(1, len(published) + 1)) - set(covered) - set(lost)
        if passes is None:
            assert not missing
        else:
            assert all(
                published[seq - 1].kind is Kind.DATA and cast(int, published[seq - 1].attributes["n"]) > 2
                for seq in missing
            )
        later = [published[row.seq - 1] for row in self.rows if row.kind is Kind.GC]
        for row in self.rows:
            if row.kind is Kind.TOMBSTONE and not self.lost:
                for seq in range(row.seq - row.range + 1, row.seq + 1):
                    assert any(collects(g, published[seq - 1], Policy()) for g in later), (
                        f"nothing collects {seq}"
                    )


KEYS = st.sampled_from([b"a", b"b", b"c"])
GC = st.sampled_from([None, None, None, None, "same key", "keep last 30", "upto 10"])
ROWS = st.lists(st.tuples(KEYS, GC), min_size=1, max_size=20)
WORDS = ("publish", "flood", "flood", "archive", "archive", "collect", "tidy", "take", "take")
STEP = st.tuples(st.sampled_from(WORDS), ROWS)
"""`flood` is more than the server keeps."""


@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(STEP, min_size=8, max_size=30), where=st.sampled_from(["", "", "n in 0..2"]))
def test_a_replay_gives_every_event_once_or_says_what_is_gone(
    steps: list[tuple[str, list[tuple[bytes, str | None]]]], where: str
) -> None:
    async def play() -> None:
        story = Story(where)
        log = story.served.log

        async def take() -> None:
            if story.replay.next < log.next:
                await story.take()

        story.served.publish([(b"a", None)])
        story.archive()
        for word, rows in steps:
            match word:
                case "publish":
                    story.served.publish(rows)
                case "flood":
                    for _ in range(3):
                        story.served.publish(rows + [(b"z", None)] * 20)
                    log.collect()
                case "archive":
                    story.archive()
                case "collect":
                    log.collect(everything=True)
                case "tidy":
                    story.tidy()
                case _:
                    await take()
        while story.replay.next < log.next:
            await take()
        await story.replay.close()
        story.check(where)

    run(play())
