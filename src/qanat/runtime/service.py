"""What stands on a connection: a service per channel, and why a connection ended."""

from typing import TYPE_CHECKING

import msgspec

from qanat.wire.frame import Frame

if TYPE_CHECKING:
    from qanat.runtime.connection import Connection

TRANSPORT_CHANNEL = 0
STREAMS_CHANNEL = 1
FIRST_MACHINE_CHANNEL = 16
IDLE = "idle"
"""Why a connection ended that this end closed because nobody used it: no loss, and no news for a machine."""


class Closed(msgspec.Struct, frozen=True):
    """Why a connection ended. `code` is one of a short list, counted in the metrics; `detail` is for people.

    | code | meaning |
    |---|---|
    | `closed` | this end closed it |
    | `shutdown` | this process, or the peer's, is stopping |
    | `idle` | this end closed it, since nobody used it |
    | `eof` | the peer closed the socket without a word |
    | `reset` | the network or the peer's kernel broke it |
    | `goodbye` | the peer closed it and said so; what it said is in `detail` |
    | `malformed`, `over_limit` | the peer sent what is no frame, or one too large |
    | `version`, `cluster`, `magic`, `full`, `refused` | the handshake was refused, by either end |
    | `local` | the peer goes on over a Unix socket of this machine |
    | `duplicate` | another connection between the same two nodes was kept |
    | `handshake_timeout` | no handshake in time |
    | `silent` | no sign of life for several heartbeats: half open, or the peer's loop is stuck |
    | `stalled` | the peer took nothing of what was queued for it |
    | `out_of_memory` | the process is short of memory, and this connection held much of it |
    | `overflow` | more was queued for the peer than the limit |
    | `unknown_channel` | a frame for a service that is not here |
    | `protocol` | a service found that the peer broke its protocol |
    | `handler_error` | a service failed: a bug at this end |
    """

    code: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.detail else self.code


class Service:
    """Base of what handles one channel of many connections.

    All methods are called on the event loop, one at a time, and must not block. An exception costs the
    connection it was raised for: a `RemoteError` says that the peer broke the protocol, anything else is
    logged as a fault of ours.
    """

    def on_connect(self, connection: "Connection") -> None:
        """The handshake is done; `connection.peer` says who it is."""

    def on_frame(self, connection: "Connection", frame: Frame) -> None:
        """A frame for this channel. `frame.attachment` is a view that may be kept (see `Frame`)."""
        raise NotImplementedError

    def on_chunk_end(self, connection: "Connection") -> None:
        """All frames that arrived together were handed over: the moment to act once for all of them."""

    def on_writable(self, connection: "Connection") -> None:
        """The connection was not writable, and is again."""

    def on_close(self, connection: "Connection", reason: Closed) -> None:
        """The end; called once after `on_connect`, and nothing after it."""
