"""A log into a stream, exactly once, across crashes of the reader, the stream's server and the datastore.

No state is kept here. The stream remembers the highest position of each source, durably, and drops what it
has; so a feed that starts asks for that position, seeks the log to it and goes on. If the stream is set back,
the feed reads again from where it is.
"""

from collections.abc import Callable
from typing import NamedTuple

from qanat.capture.choice import Choice
from qanat.capture.continuity import Expecting
from qanat.capture.events import Events, events_of
from qanat.capture.last_update import last_of
from qanat.capture.losses import loss_event
from qanat.capture.reader import Acknowledging, LogReader, Lost, Start
from qanat.capture.trying import Trying
from qanat.capture.updates import Updates
from qanat.client import Client, PositionsLost
from qanat.events.errors import LocalError, RemoteError
from qanat.events.position import Position
from qanat.runtime.patience import PATIENCE_S

_ROWS = 20_000
"""Read at once: some megabytes of events, so that what each publish costs vanishes."""
_WAIT_S = 0.5


class Fed(NamedTuple):
    """What one step did."""

    events: int
    upto: Position | None


def publish(client: Client, stream: str, events: Events) -> None:
    """Under the positions that the events have; returns once they are stored."""
    places = events.sequences, events.indexes
    client.publish_at(stream, events.payloads, places, keys=events.keys, attributes=events.attributes)


def source_of(reader: LogReader, choice: Choice) -> str:
    """The name under which a feed publishes, and under which the stream keeps how far it is.

    A stream drops positions that it has. So whatever may have other updates at the same positions needs
    another name: another dataset, and another choice of the same log.
    """
    if not reader.identified:
        raise LocalError(
            f"{reader.source!r} may be the name of another dataset as well, whose positions in the stream"
            " would hide updates of this one: give it a name of its own, the same for all its replicas, by"
            " ?dataset=NAME in the URL"
        )
    return f"{reader.source}?{choice.mark}" if choice.mark else reader.source


class Feed:
    """`client` must have `source_of` the reader and the choice for its name. `say` hears of what is missing
    in the log, and of what is tried again."""

    def __init__(
        self,
        reader: LogReader,
        client: Client,
        stream: str,
        *,
        start: Start = "earliest",
        choice: Choice | None = None,
        say: Callable[[str], None] = lambda _: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._reader, self._client, self._stream = reader, client, stream
        self._start, self._choice, self._say = start, choice or Choice(), say
        self._trying = Trying(patience_s, say)
        self._source = source_of(reader, self._choice)
        self.losses = 0
        """How often the log no longer had something."""
        self._seek(client.position(stream))

    def _seek(self, position: Position) -> None:
        self._resumes = position
        self._reader.seek(position if position > (0, 0) else self._start)
        if position > (0, 0) and isinstance(self._reader, Expecting):
            last = last_of(self._client, self._stream, self._source, position)
            if last is not None:
                self._reader.expect(last)

    def step(self) -> Fed:
        """Reads once and publishes what came. Raises what stays wrong for longer than `patience_s`."""
        try:
            item = self._reader.read(_ROWS, _WAIT_S)
        except RemoteError as error:
            self._trying.failed(error)
            return Fed(0, None)
        self._trying.went()
        if isinstance(item, Lost):
            self.losses += 1
            self._say(f"lost: what is after {item.after} and up to {item.upto} is gone: {item.reason}")
        events = loss_event(item) if isinstance(item, Lost) else self._events(item)
        try:
            if len(events):
                publish(self._client, self._stream, events)
        except PositionsLost as lost:
            self._say(str(lost))
            self._seek(lost.position)
            return Fed(0, None)
        if len(events):
            self._resumes = Position(int(events.sequences[-1]), int(events.indexes[-1]))
        if item.upto is not None and isinstance(self._reader, Acknowledging):
            # The stream knows only what was published; a feed that is started again begins there.
            self._reader.acknowledge(item.upto, self._resumes if self._resumes > (0, 0) else None)
        return Fed(len(events), item.upto)

    def _events(self, updates: Updates) -> Events:
        return events_of(self._choice.of(updates), self._choice.sharding)
