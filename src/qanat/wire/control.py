"""What the transport itself says, on channel 0: handshake, heartbeats, farewell.

| frame | who, when | answered by |
|---|---|---|
| HELLO | the dialling end, first | WELCOME or REFUSE |
| WELCOME | the listening end | nothing: the connection is up |
| REFUSE | the listening end; it then closes | nothing |
| PING | either end, when the connection was silent | PONG with the same `sent_us`, unless `oneway` |
| GOODBYE | either end, last | nothing |
| ERROR | a service, on its own channel, about one request | as the service says |
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from qanat.events.errors import RemoteError
from qanat.events.ranges import Code, Count, NodeName, Path, Reason, Small
from qanat.wire.frame import FrameType, MalformedFrame

MAGIC = b"QANAT"
OLDEST_VERSION = 1
NEWEST_VERSION = 1
Capabilities = Annotated[tuple[Code, ...], Meta(max_length=32)]


class Identity(msgspec.Struct, frozen=True):
    """Who stands at one end of a connection.

    `incarnation` grows with each start of the node (its start time in µs will do): a peer tells a
    restarted node from a second connection of the same one by it. `name` is unique within `cluster`
    for role `node`; many clients may share one.
    """

    name: NodeName
    incarnation: Count = 0
    cluster: NodeName = "qanat"
    role: Code = "node"
    address: Path = ""
    """Where this end can be dialled in its turn, as a URL; empty when it does not listen."""


class Hello(msgspec.Struct, frozen=True):
    identity: Identity
    oldest: Small = OLDEST_VERSION
    newest: Small = NEWEST_VERSION
    magic: Annotated[bytes, Meta(max_length=64)] = MAGIC
    capabilities: Capabilities = ()
    credentials: Annotated[bytes, Meta(max_length=4_096)] = b""
    """Room for proof of identity; carried and not read."""
    dialled: Path = ""
    """The address that was dialled, when the dialling end would rather take the short way of one machine."""


class Welcome(msgspec.Struct, frozen=True):
    identity: Identity
    version: Small
    capabilities: Capabilities = ()
    local: Path = ""
    """Where the same machine gets in by a shorter way: the name of a Unix socket. Who takes it closes this
    connection."""


class Refuse(msgspec.Struct, frozen=True):
    """`code` is for programs (`version`, `cluster`, `duplicate`, `full`, …), `reason` for people."""

    code: Code
    reason: Reason


class Ping(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`oneway` marks the sign of life of an end that reads nothing for the moment: no answer, please."""

    sent_us: Count
    oneway: bool = False


class Pong(msgspec.Struct, frozen=True, array_like=True, gc=False):
    sent_us: Count


class Goodbye(msgspec.Struct, frozen=True):
    code: Code
    reason: Reason = ""


class Error(msgspec.Struct, frozen=True):
    """An answer that refuses one request; `definite` says whether the request certainly had no effect."""

    code: Code
    message: Reason
    definite: bool = True
    request: Count = 0


class Refused(RemoteError):
    """The peer would not have this connection; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_encode = msgspec.msgpack.Encoder().encode
_decoders = {
    FrameType.HELLO: msgspec.msgpack.Decoder(Hello),
    FrameType.WELCOME: msgspec.msgpack.Decoder(Welcome),
    FrameType.REFUSE: msgspec.msgpack.Decoder(Refuse),
    FrameType.PING: msgspec.msgpack.Decoder(Ping),
    FrameType.PONG: msgspec.msgpack.Decoder(Pong),
    FrameType.GOODBYE: msgspec.msgpack.Decoder(Goodbye),
    FrameType.ERROR: msgspec.msgpack.Decoder(Error),
}

Control = Hello | Welcome | Refuse | Ping | Pong | Goodbye | Error
_T = TypeVar("_T")


def encode_control(value: Control) -> bytes:
    return _encode(value)


def decode_control(type_: int, control: bytes) -> Control:
    """Reads what a frame of the transport's own says; raises `MalformedFrame`."""
    decoder = _decoders.get(type_)  # type: ignore[call-overload]
    if decoder is None:
        raise MalformedFrame("malformed", f"frame type {type_} has no meaning on the transport's channel")
    try:
        value: Control = decoder.decode(control)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        name = FrameType(type_).name
        raise MalformedFrame(
            "malformed", f"the control part of a {name} frame is malformed: {error}"
        ) from None
    return value


def agree(hello: Hello, oldest: int = OLDEST_VERSION, newest: int = NEWEST_VERSION) -> int:
    """The newest version both ends speak; raises `Refused` when there is none."""
    if hello.magic != MAGIC:
        raise Refused("magic", "this port speaks the Qanat protocol, and the peer does not")
    version = min(newest, hello.newest)
    if version < max(oldest, hello.oldest):
        raise Refused(
            "version",
            f"no common protocol version: this end speaks {oldest} to {newest}, the peer {hello.oldest} to"
            f" {hello.newest}; upgrade the older one",
        )
    return version
