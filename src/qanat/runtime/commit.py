"""Group commit: many records, one fsync, in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from qanat.runtime.journal import Journal
from qanat.runtime.journal_file import NoRoom

_AGAIN_S = 0.2
"""Between two attempts where there is no room: soon after there is some, all goes on."""


class GroupCommit:
    """Feeds a journal from the event loop.

    Records that come while an fsync is under way go to disk together with the next one. `on_durable` is
    called on the loop with the number of the last record on disk; `on_failure` once, if the disk fails:
    nothing is durable from then on.

    A full disk is waited for: the records are written again and again until there is room, and `on_room` is
    told, on the loop, whether there is
    any: True after each write in good order, False while there is none or the journal lives on what was set
    aside.
    """

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        on_durable: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        on_room: Callable[[bool], None] = lambda _there: None,
    ) -> None:
        self.appended = 0
        self.durable = 0
        self._journal = journal
        self._executor = executor
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._on_room = on_room
        self._again: asyncio.TimerHandle | None = None
        self._records: list[bytes] = []
        """Those that are being written."""
        self._waiting: list[bytes] = []
        self._busy = False
        self._failed = self._closing = False
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
        if self._again is not None:
            self._give_up()
        self._closing = True
        await self._idle.wait()
        self._failed = True
        self._journal.close()

    def _begin(self) -> None:
        self._records, self._waiting = self._waiting, []
        self._write()

    def _write(self) -> None:
        self._again = None
        future = asyncio.get_running_loop().run_in_executor(
            self._executor, self._journal.write, self._records
        )
        future.add_done_callback(self._written)

    def _written(self, done: "asyncio.Future[None]") -> None:
        upto = self.durable + len(self._records)
        error = done.exception()
        if isinstance(error, NoRoom):
            self._on_room(False)
            if self._closing:
                self._give_up()
            else:
                self._again = asyncio.get_running_loop().call_later(_AGAIN_S, self._write)
            return
        if error is not None:
            self._failed = True
            self._busy = False
            self._idle.set()
            self._on_failure(error)
            return
        self.durable = upto
        self._on_room(not self._journal.cramped)
        if self._waiting:
            self._begin()
        else:
            self._busy = False
            self._idle.set()
        self._on_durable(upto)

    def _give_up(self) -> None:
        """What found no room is as if the power had gone."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._failed, self._busy = True, False
        self._idle.set()
