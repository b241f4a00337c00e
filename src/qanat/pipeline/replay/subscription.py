"""A subscription that begins in the archive and goes over to the live stream.

It promises what any subscription does: every event from its start on, in order, once, or a tombstone for it;
what nobody keeps is told as `EventsLost` with the exact range, and reading on continues after it. Filters
mean the same in both halves.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from qanat.client import AsyncClient, BlockingSubscription, Client, EventsLost, Subscription
from qanat.client.record import Recording
from qanat.client.subscription import EventIterator, Where, starting_point
from qanat.client.ways import Via
from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.events.filters import FilterError, parse
from qanat.pipeline.archive.errors import ArchiveDamaged
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.identity import same_birth, same_event
from qanat.pipeline.archive.manifest import Manifest
from qanat.pipeline.archive.storage import storage_of
from qanat.pipeline.replay.bucket import Bucket
from qanat.pipeline.replay.handover import Archive, Gone, Server, Wait, choose, earliest, since
from qanat.pipeline.replay.reading import ReadAhead
from qanat.pipeline.replay.row_groups import FileGone
from qanat.pipeline.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
POLL_S = 0.1
"""How often a server that is behind the archive is asked again."""


class AsyncReplay:
    """Iterate for events, or use `batches()`, as with a `Subscription`."""

    def __init__(
        self,
        client: AsyncClient,
        archive: str,
        stream: str,
        *,
        start: Where = "earliest",
        where: str = "",
        via: Via = "server",
        settings: ReplaySettings | None = None,
        spark: "SparkSession | None" = None,
    ) -> None:
        """`archive` is its path; if that is no folder of this machine, it is read through `spark`."""
        self.stream, self.where = stream, where
        self.end = 0
        """The stream's next sequence number at the moment of subscribing."""
        self.settings = settings or ReplaySettings()
        starting_point(start)
        self._client, self._start, self._via = client, start, via
        self._filter = parse(where) if where.strip() else None
        if self._filter is not None and self._filter.contextual:
            raise FilterError("a subscription's filter cannot use predicates about a GC event")
        self._history = History(storage_of(archive, spark), stream)
        self._pool = ThreadPoolExecutor(self.settings.threads + 1, thread_name_prefix="qanat-replay")
        self._bucket = Bucket(self.settings.rate_bytes_per_s, time.monotonic())
        self._at = 0
        """The number after all that was read, or passed over; 0 until it is known where to start."""
        self._ready: deque[Batch] = deque()
        self._ahead: ReadAhead | None = None
        self._live: Subscription | None = None
        self._gone = ""
        """What was said of the file that was missing last."""
        self._closed = False
        record = client._record
        self.recording = (
            Recording(record, client.name, stream, where, str(start)) if record is not None else None
        )

    @property
    def way(self) -> Literal["archive", "server", "both", "mesh"]:
        """Where events come from now."""
        return "archive" if self._live is None else self._live.way

    @property
    def rate(self) -> float:
        """Bytes per second that come from the archive at most; 0 is without limit. May be set at any time."""
        return self._bucket.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._bucket.set_rate(rate, time.monotonic())

    @property
    def next(self) -> int:
        """The sequence number that comes next; 0 until it is known where to start."""
        if self._live is not None:
            return self._live.next
        return self._ready[0].first if self._ready else self._at

    async def confirmed(self) -> "AsyncReplay":
        """Once it is known where to start: `next` and `end` are set, and nothing after this moment is
        missed."""
        if self._at:
            return self
        manifest = await self._in_pool(self._history.existing)
        await self._check(manifest)
        start, seen = self._start, await self._client.look(self.stream, self._start)
        self.end = seen.readable + 1
        match start:
            case int():
                self._at = start
            case "earliest":
                self._at = earliest(manifest, seen)
            case datetime():
                self._at = await self._in_pool(partial(since, self._history, manifest, seen, start))
            case _:
                self._at = seen.start
        return self

    # --- taking -------------------------------------------------------------------------------------

    async def take(self) -> list[Batch]:
        """Some batches, at least one; waits for it."""
        if self._closed:
            raise LocalError(f"the replay of {self.stream!r} was closed")
        await self.confirmed()
        if self.recording is not None and not self.recording.begun:
            self.recording.begin(self._at, self._client.region)
        try:
            taken = await self._next()
        except EventsLost as lost:
            if self.recording is not None:
                self.recording.lost(lost)
            raise
        if self.recording is not None:
            self.recording.took(taken)
        return taken

    async def _next(self) -> list[Batch]:
        while True:
            if self._live is not None:
                try:
                    return await self._live.take()
                except EventsLost as lost:
                    await self._leave(self._live, lost.first)
            elif self._ready:
                return await self._limited()
            elif self._ahead is not None:
                await self._read(self._ahead)
            else:
                await self._choose()

    async def _limited(self) -> list[Batch]:
        """As much of what is ready as the rate allows, at least one batch."""
        while delay := self._bucket.delay(time.monotonic()):
            await asyncio.sleep(delay)
        taken: list[Batch] = []
        while self._ready and not (taken and self._bucket.delay(time.monotonic())):
            taken.append(self._ready.popleft())
            self._bucket.take(taken[-1].size, time.monotonic())
        return taken

    async def _read(self, ahead: ReadAhead) -> None:
        try:
            batches = await ahead.take()
        except FileGone as gone:
            # Perhaps the archive was rewritten, and what was replaced is cleaned away: read on in its newest
            # version.
            self._stop_reading()
            if self._gone == str(gone):
                raise ArchiveDamaged(
                    f"{gone}: restore it from a copy; `qanat archive check` lists all that is wrong"
                ) from None
            self._gone = str(gone)
            return
        if not batches:
            self._stop_reading()
            return
        self._ready.extend(batch for batch in batches if batch.count)
        self._at = batches[-1].last + 1

    # --- who has what comes next --------------------------------------------------------------------

    async def _choose(self) -> None:
        manifest = await self._in_pool(self._history.existing)
        await self._check(manifest)
        seen = await self._client.look(self.stream, self._at)
        match choose(manifest, seen, self._at, self.settings.handover_rows):
            case Archive(last):
                self._ahead = ReadAhead(
                    self._pool,
                    self._history.storage,
                    self.stream,
                    manifest.overlapping(self._at, last),
                    self._at,
                    self.settings,
                    self._filter,
                )
            case Server():
                live = self._client.subscribe(self.stream, start=self._at, where=self.where, via=self._via)
                live.recording = None  # this one's has it all
                self._live = await live.confirmed()
            case Gone(lost):
                self._at = lost.last + 1
                raise EventsLost(self.stream, lost.first, lost.last)
            case Wait():
                await asyncio.sleep(POLL_S)

    async def _leave(self, live: Subscription, at: int) -> None:
        """The server has dropped what was to come; the archive may have it."""
        self._live, self._at = None, at
        await live.close()

    async def _check(self, manifest: Manifest) -> None:
        """Raises `StreamChanged` unless server and archive speak of the same stream. The archive may be ahead
        of this region."""
        seen = await self._client.look(self.stream, manifest.next or 1)
        same_birth(manifest, seen)
        for anchor in reversed(manifest.anchors):
            if anchor.seq <= seen.readable:
                mark = (await self._client.look(self.stream, anchor.seq + 1)).mark
                if same_event(manifest, anchor, mark):
                    return

    # --- life ---------------------------------------------------------------------------------------

    async def _in_pool(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _stop_reading(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    async def batches(self) -> AsyncIterator[Batch]:
        """Batches as they come: the fast way."""
        while True:
            for batch in await self.take():
                yield batch

    def __aiter__(self) -> EventIterator:
        return EventIterator(cast(Subscription, self))

    async def close(self) -> None:
        self._closed = True
        self._stop_reading()
        self._pool.shutdown(wait=False, cancel_futures=True)
        live, self._live = self._live, None
        if live is not None:
            await live.close()
        if self.recording is not None:
            self.recording.end()

    async def __aenter__(self) -> "AsyncReplay":
        return await self.confirmed()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class Replay(BlockingSubscription):
    """The same, blocking: `for event in Replay(client, "/data/archive", "orders", start=1): …`."""

    def __init__(
        self,
        client: Client,
        archive: str,
        stream: str,
        *,
        start: Where = "earliest",
        where: str = "",
        via: Via = "server",
        settings: ReplaySettings | None = None,
        spark: "SparkSession | None" = None,
    ) -> None:
        async def work() -> AsyncReplay:
            replay = AsyncReplay(
                client._client,
                archive,
                stream,
                start=start,
                where=where,
                via=via,
                settings=settings,
                spark=spark,
            )
            try:
                return await replay.confirmed()
            except BaseException:
                await replay.close()
                raise

        self._replay = client._call(work())
        super().__init__(client, cast(Subscription, self._replay))

    @property
    def rate(self) -> float:
        """Bytes per second that come from the archive at most; 0 is without limit. May be set at any time."""
        return self._replay.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._replay.rate = rate

    def __enter__(self) -> "Replay":
        return self
