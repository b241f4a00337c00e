"""One writer for each source of a stream: who opened it last, from its first publish on.

A source is one ordered writer. Two that publish under one name lose each other's events: what one publishes under a position that the other
has used passes for a repetition, and is answered as stored. So the former writer is refused from then on, and hears why.
"""

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.runtime.connection import Connection

OPENED_MAX = 1_024
"""Sources that one connection may have opened on one stream at a time; those before them count as not opened."""


class SourceTaken(LocalError):
    """Another connection publishes under this source now."""


class Writers:
    """Of one stream. Sources that nobody opened, such as those of events that are passed on, belong to nobody."""

    def __init__(self) -> None:
        self._opened: dict[Connection, dict[str, int]] = {}
        """When a connection opened a source, counted."""
        self._writers: dict[str, tuple[Connection, int]] = {}
        """Who publishes under it, and when it took that over."""
        self._openers: dict[str, int] = {}
        """How many connections have it open."""
        self._count = 0

    @property
    def several(self) -> bool:
        return len(self._opened) > 1

    def opened(self, connection: Connection, source: str) -> None:
        if not source:
            return
        mine = self._opened.setdefault(connection, {})
        if mine.pop(source, None) is None:
            self._openers[source] = self._openers.get(source, 0) + 1
            if len(mine) >= OPENED_MAX:
                self._close(connection, next(iter(mine)))
        mine[source] = self._next()

    def check(self, connection: Connection, batches: list[Batch]) -> None:
        """Refuses what is published under a source that another has; the first publish after opening takes it over."""
        mine = self._opened.get(connection)
        if mine is not None and len(self._opened) == 1:
            return  # nobody else is there: what usually is the case costs nothing
        for batch in batches:
            for source in batch.source_names:
                opened = 0 if mine is None else mine.get(source, 0)
                writer, since = self._writers.get(source, (None, 0))
                if (not opened and source in self._openers) or (opened < since and writer is not connection):
                    raise SourceTaken(
                        f"another client publishes under source {source!r} now: two at once under one name would lose events, so give each a name of its "
                        "own, or connect again to take it over"
                    )
                if opened and writer is not connection:
                    self._writers[source] = (connection, self._next())

    def forget(self, connection: Connection) -> None:
        for source in list(self._opened.get(connection, ())):
            self._close(connection, source)
        self._opened.pop(connection, None)

    def _close(self, connection: Connection, source: str) -> None:
        del self._opened[connection][source]
        left = self._openers.pop(source) - 1
        if left:
            self._openers[source] = left
        if self._writers.get(source, (None, 0))[0] is connection:
            del self._writers[source]

    def _next(self) -> int:
        self._count += 1
        return self._count
