"""A range of an archive in order, read ahead by several threads."""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from qanat.events.batch import Batch
from qanat.events.filters import Filter
from qanat.events.tombstones import from_sequence
from qanat.pipeline.archive.manifest import DataFile
from qanat.pipeline.archive.storage import Storage
from qanat.pipeline.replay.row_groups import RowGroup, read_batches, row_groups
from qanat.pipeline.replay.settings import ReplaySettings


class ReadAhead:
    """The batches of some adjacent files from `start` on; `take` gives the next row group's, an empty list at
    the end.

    Row groups are read by a pool's threads, at most `ahead_bytes` of them (and one at least) before they are
    taken.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        storage: Storage,
        stream: str,
        files: Sequence[DataFile],
        start: int,
        settings: ReplaySettings,
        where: Filter | None = None,
    ) -> None:
        self._pool, self._settings, self._start = pool, settings, start
        self._groups = _lazily(storage, files, start)
        self._read = partial(read_batches, storage, stream, batch_bytes=settings.batch_bytes, where=where)
        self._ahead: deque[tuple[RowGroup, Future[list[Batch]]]] = deque()
        self._bytes = 0
        self._filling = threading.Lock()

    async def take(self) -> list[Batch]:
        """Safe to be cancelled: what was not returned is returned the next time."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._fill)
        if not self._ahead:
            return []
        group, future = self._ahead[0]
        batches = await asyncio.shield(asyncio.wrap_future(future))
        self._ahead.popleft()
        self._bytes -= group.bytes
        if batches[0].first < self._start:
            batches = [from_sequence(batch, self._start) for batch in batches if batch.last >= self._start]
        return batches

    def _fill(self) -> None:
        with self._filling:  # one that nobody waits for any more may still be at it
            self._submit()

    def _submit(self) -> None:
        while len(self._ahead) < self._settings.threads and (
            not self._ahead or self._bytes < self._settings.ahead_bytes
        ):
            group = next(self._groups, None)
            if group is None:
                return
            self._ahead.append((group, self._pool.submit(self._read, group)))
            self._bytes += group.bytes

    def close(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()


def _lazily(storage: Storage, files: Sequence[DataFile], start: int) -> Iterator[RowGroup]:
    for file in files:
        yield from row_groups(storage, file, start)
