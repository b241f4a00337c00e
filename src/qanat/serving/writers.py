"""One writer for each source of a stream: who opened it last, from its first publish on.

A source is one ordered writer. Two that publish under one name lose each other's events: what one publishes
under a position that the other has used passes for a repetition, and is answered as stored. So the former
writer is refused from then on, and hears why, also when the other has left
again: it went by a position that is no longer the last. Who has only opened it meanwhile is told to ask again
how far it is.

What a client's own earlier connection, or its earlier life, publishes late is no other's: it is what would be
published again, and is a repetition.
"""

from typing import NamedTuple

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.runtime.connection import Connection

OPENED_MAX = 1_024
"""Sources that one connection may have opened on one stream at a time; those before them count as not
opened."""


class SourceTaken(LocalError):
    """Another connection publishes under this source now."""


class SourceMoved(LocalError):
    """Another published under this source since it was opened here: its position is another one now."""


class _Writer(NamedTuple):
    """Who publishes under a source: by name, when it opened that, and since when it publishes."""

    name: str
    opened: int
    since: int


class Writers:
    """Of one stream. Sources that nobody has open, such as those of events that are passed on, belong to
    nobody."""

    def __init__(self) -> None:
        self._opened: dict[Connection, dict[str, int]] = {}
        """When a connection opened a source, counted."""
        self._publishing: dict[Connection, set[str]] = {}
        """Those of them that it has published under."""
        self._writers: dict[str, _Writer] = {}
        self._openers: dict[str, int] = {}
        """How many connections have it open."""
        self._count = 0
        self._alone = False
        """Whether the only connection has published since it is that."""

    @property
    def several(self) -> bool:
        """Whether it may matter who publishes."""
        return len(self._opened) > 1 or bool(self._writers)

    def opened(self, connection: Connection, source: str) -> None:
        if not source:
            return
        if self._alone and connection not in self._opened:
            self._alone = False
            for other, theirs in self._opened.items():
                self._publishing[other] = set(theirs)
        mine = self._opened.setdefault(connection, {})
        if mine.pop(source, None) is None:
            self._openers[source] = self._openers.get(source, 0) + 1
            if len(mine) >= OPENED_MAX:
                self._close(connection, next(iter(mine)))
        mine[source] = self._next()
        self._publishing.get(connection, set()).discard(source)

    def check(self, connection: Connection, batches: list[Batch]) -> None:
        """Refuses what is published under a source that another has."""
        mine = self._opened.get(connection)
        if mine is not None and not self.several:
            return  # nobody else is there: what usually is the case costs nothing
        for batch in batches:
            for source in batch.source_names:
                self._check(connection, mine or {}, source)

    def took(self, connection: Connection, batches: list[Batch]) -> None:
        """What was checked is stored: the first publish after opening takes the source over."""
        mine = self._opened.get(connection)
        if mine is None:
            return
        if not self.several:
            self._alone = True
            return
        publishing = self._publishing.setdefault(connection, set())
        for batch in batches:
            for source in batch.source_names:
                opened, writer = mine.get(source, 0), self._writers.get(source)
                if opened:
                    publishing.add(source)
                    if writer is None or writer.opened != opened:
                        self._writers[source] = _Writer(connection.peer.name, opened, self._next())

    def _check(self, connection: Connection, mine: dict[str, int], source: str) -> None:
        opened, writer = mine.get(source, 0), self._writers.get(source)
        if not opened:
            if source in self._openers:
                raise _taken(source)
            return
        if writer is not None and writer.opened != opened < writer.since:
            if source in self._publishing.get(connection, ()):
                raise _taken(source)
            if writer.opened > opened or writer.name != connection.peer.name:
                raise SourceMoved(
                    f"another client has published under source {source!r} since it was opened here: ask how"
                    " far it is, and go on from there; two at once under one name would lose events, so give"
                    " each a name of its own"
                )

    def forget(self, connection: Connection) -> None:
        for source in list(self._opened.get(connection, ())):
            self._close(connection, source)
        self._opened.pop(connection, None)
        self._publishing.pop(connection, None)
        if len(self._opened) == 1:  # what is of the only one left need not be known
            ((only, theirs),) = self._opened.items()
            own = [source for source, writer in self._writers.items() if writer.opened == theirs.get(source)]
            self._publishing.setdefault(only, set()).update(own)
            for source in own:
                del self._writers[source]

    def _close(self, connection: Connection, source: str) -> None:
        del self._opened[connection][source]
        self._publishing.get(connection, set()).discard(source)
        left = self._openers.pop(source) - 1
        if left:
            self._openers[source] = left
        else:
            self._writers.pop(source, None)

    def _next(self) -> int:
        self._count += 1
        return self._count


def _taken(source: str) -> SourceTaken:
    return SourceTaken(
        f"another client publishes under source {source!r} now: two at once under one name would lose events,"
        " so give each a name of its own, or connect again to take it over"
    )
