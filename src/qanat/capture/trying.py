"""A datastore that is away is asked again, for as long as patience lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from qanat.capture.errors import LogUnreachable
from qanat.events.errors import RemoteError
from qanat.runtime.backoff import DATASTORE_MS, Backoff

_T = TypeVar("_T")


class Trying:
    """Counts from the first failure after something went well; `say` is told of that one."""

    def __init__(self, patience_s: float, say: Callable[[str], None]) -> None:
        self._patience_s, self._say = patience_s, say
        self._since: float | None = None
        self._backoff = Backoff(*DATASTORE_MS)

    def ask(self, work: Callable[[], _T]) -> _T:
        """What it returns, once the datastore answers. Raises what stays wrong for longer, and at once what
        waiting does not mend."""
        while True:
            try:
                found = work()
            except LogUnreachable as error:
                self.failed(error)
            else:
                self.went()
                return found

    def went(self) -> None:
        self._since = None
        self._backoff.reset()

    def failed(self, error: RemoteError) -> None:
        """Waits a little; raises the error if it has been wrong for too long."""
        now = time.monotonic()
        if not self._patience_s:
            raise error
        if self._since is None:
            self._since = now
            self._say(f"trying again for up to {self._patience_s:g} s: {error}")
        if now - self._since > self._patience_s:
            raise error
        self._backoff.sleep()
