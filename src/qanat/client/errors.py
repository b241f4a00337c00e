"""What a client raises.

```
LocalError
├── ClientClosed       the client was closed, by its owner or after an error it could not mend
├── Congested          far more was published than the server has taken: wait for room
├── RecordingFailed    what a subscription was to hand over could not be recorded (see `record`)
└── CorruptRecord      a delivery record that was damaged (see `record_format`)
RemoteError
├── Unavailable        no server could be reached for as long as the client is patient
├── ServerRefused      the server would not do what was asked; `code` says why
│   ├── PublishRefused     it would not store an event
│   │   └── OwnedElsewhere     because the stream belongs to another region, which is its `owner`
│   ├── RequestRefused     it would not subscribe or answer
│   │   └── OrderRefused       it would not make, change or remove a stream
│   └── NoStream           there is no such stream, and none is made by using it
├── PositionsLost      the stream no longer has what it acknowledged: publish again from its `position`
├── EventsLost         the stream no longer keeps some events; the subscription goes on after them
└── DeliveryGap        the server skipped events without a word: a bug there, never passed over here
```
"""

from qanat.events.errors import LocalError, QanatError, RemoteError
from qanat.events.position import Position
from qanat.wire.streams import NO_STREAM, OWNED_ELSEWHERE


class ClientClosed(LocalError):
    """The client is closed. What was published and not acknowledged may have been stored."""

    definite = False


class Congested(LocalError):
    """The event was not taken: this process would hold more and more of what the server cannot keep up
    with."""


class Unavailable(RemoteError):
    """No server. What was sent and not acknowledged may have been stored."""

    definite = False


class ServerRefused(RemoteError):
    """The server would not."""

    def __init__(self, code: str, message: str, definite: bool = True) -> None:
        super().__init__(message, definite=definite)
        self.code = code


class PublishRefused(ServerRefused):
    """The server refused to store."""

    exit_code = 1


class OwnedElsewhere(PublishRefused):
    """Only the region that owns a stream takes events for it: publish at one of its replicas."""

    def __init__(self, code: str, message: str, stream: str, owner: str) -> None:
        super().__init__(code, message)
        self.stream, self.owner = stream, owner


class RequestRefused(ServerRefused):
    """The server refused a request other than a publish: it asks for what cannot be."""

    exit_code = 2


class OrderRefused(RequestRefused):
    """The server would not make, change or remove a stream as things are: it is there already, or stands in a
    file."""

    exit_code = 1


class NoStream(ServerRefused):
    """There is no such stream. In a deployment, streams are made by adding them to its file."""

    exit_code = 2

    def __init__(self, code: str, message: str, stream: str) -> None:
        super().__init__(code, message)
        self.stream = stream


def publish_refused(code: str, message: str, definite: bool, stream: str, owner: str) -> ServerRefused:
    """The error for a refusal to open a stream, or to store what was published to it."""
    if code == OWNED_ELSEWHERE:
        return OwnedElsewhere(code, message, stream, owner)
    if code == NO_STREAM and definite:
        return NoStream(code, message, stream)
    return PublishRefused(code, message, definite)


def request_refused(code: str, message: str, stream: str) -> ServerRefused:
    """The error for any other refusal."""
    return NoStream(code, message, stream) if code == NO_STREAM else RequestRefused(code, message)


def unsure(error: QanatError) -> QanatError:
    """The same, for something that was sent already: it may have happened."""
    if not error.definite:
        return error
    twin: QanatError = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__, definite=False)
    return twin


class PositionsLost(RemoteError):
    """The stream was set back, behind positions that it had acknowledged; all after `position` is to be
    published again."""

    def __init__(self, stream: str, source: str, acknowledged: Position, position: Position) -> None:
        super().__init__(
            f"stream {stream!r} had {source!r} up to {acknowledged} and now has it only up to {position}:"
            " publish again what follows that"
        )
        self.stream, self.source, self.position = stream, source, position


class EventsLost(RemoteError):
    """The stream was truncated past where this subscription was. Reading on continues after `last`."""

    def __init__(self, stream: str, first: int, last: int) -> None:
        super().__init__(
            f"stream {stream!r} no longer keeps events {first} to {last} ({last - first + 1} of them); "
            f"read on to continue at {last + 1}"
        )
        self.stream, self.first, self.last = stream, first, last


class DeliveryGap(RemoteError):
    """Events are missing between what came and what comes."""

    def __init__(self, stream: str, expected: int, got: int) -> None:
        super().__init__(
            f"stream {stream!r} jumped from {expected - 1} to {got} without a tombstone or notice"
        )
        self.stream, self.expected, self.got = stream, expected, got
