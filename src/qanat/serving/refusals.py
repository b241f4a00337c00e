"""How a client is told no: one frame, whose code is the name of the error."""

from qanat.events.errors import LocalError, code_of
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.streams import REFUSED, Refused, encode_control


class NoStream(LocalError):
    """There is no stream of that name."""


class StreamExists(LocalError):
    """There is a stream of that name already."""


class Declared(LocalError):
    """The stream stands in a file, which decides how it is kept."""


class StreamLimit(LocalError):
    """The server has as many streams as it may."""


class NotHead(LocalError):
    """Publishes go to the head of the region's chain, and this replica is not."""


class NotTail(LocalError):
    """Subscriptions go to the tail of the region's chain, and this replica is not."""


class OwnedElsewhere(LocalError):
    """The stream belongs to another region, whose head numbers its events."""


class PositionMissing(LocalError):
    """A batch comes behind a position of its source that the stream does not have."""


class Stopping(LocalError):
    """The server is stopping."""


def refusal(request: int, error: LocalError) -> Refused:
    return Refused(request, code_of(error), str(error), error.definite)


def refuse(connection: Connection, request: int, error: LocalError) -> None:
    connection.send(REFUSED, STREAMS_CHANNEL, encode_control(refusal(request, error)))
