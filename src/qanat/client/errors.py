"""What a client raises.

```
LocalError
├── ClientClosed       the client was closed, by its owner or after an error it could not mend
└── Congested          far more was published than the server has taken: wait for room
RemoteError
├── Unavailable        no server could be reached for as long as the client is patient
├── PublishRefused     the server would not store an event; `code` says why
├── RequestRefused     the server would not open, subscribe or answer; `code` says why
├── EventsLost         the stream no longer keeps some events; the subscription goes on after them
└── DeliveryGap        the server skipped events without a word: a bug there, never passed over here
```
"""

from qanat.events.errors import LocalError, RemoteError


class ClientClosed(LocalError):
    """The client is closed. What was published and not acknowledged may have been stored."""

    definite = False


class Congested(LocalError):
    """The event was not taken: this process would hold more and more of what the server cannot keep up with."""


class Unavailable(RemoteError):
    """No server. What was sent and not acknowledged may have been stored."""

    definite = False


class PublishRefused(RemoteError):
    """The server refused to store."""

    exit_code = 1

    def __init__(self, code: str, message: str, definite: bool) -> None:
        super().__init__(message, definite=definite)
        self.code = code


class RequestRefused(RemoteError):
    """The server refused a request other than a publish: it asks for what cannot be."""

    exit_code = 2

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


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
