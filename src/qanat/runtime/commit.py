"""Group commit: many records, one fsync, in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from qanat.runtime.journal import Journal


class GroupCommit:
    """Feeds a journal from the event loop.

    Records that come while an fsync is under way go to disk together with the next one. `on_durable` is
    called on the loop with the number of the last record on disk; `on_failure` once, if the disk fails:
    nothing is durable from then on.
    """

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        on_durable: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.appended = 0
        self.durable = 0
        self._journal = journal
        self._executor = executor
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._waiting: list[bytes] = []
        self._busy = False
        self._failed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def append(self, record: bytes) -> int:
        """Takes a record and gives its number; it is on disk once `durable` has reached that."""
        self.appended += 1
        self._waiting.append(record)
        if not self._busy and not self._failed:
            self._busy = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._begin)
        return self.appended

    async def close(self) -> None:
        """Waits until everything taken is on disk, or the disk failed."""
        await self._idle.wait()
        self._failed = True
        self._journal.close()

    def _begin(self) -> None:
        records, self._waiting = self._waiting, []
        future = asyncio.get_running_loop().run_in_executor(self._executor, self._journal.write, records)
        upto = self.durable + len(records)
        future.add_done_callback(lambda done: self._written(done, upto))

    def _written(self, done: "asyncio.Future[None]", upto: int) -> None:
        error = done.exception()
        if error is not None:
            self._failed = True
            self._busy = False
            self._idle.set()
            self._on_failure(error)
            return
        self.durable = upto
        if self._waiting:
            self._begin()
        else:
            self._busy = False
            self._idle.set()
        self._on_durable(upto)
