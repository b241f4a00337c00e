"""Both ends of the handshake: HELLO, then WELCOME or REFUSE."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from qanat.events.errors import RemoteError
from qanat.events.ranges import printable
from qanat.runtime.connection import Connection
from qanat.runtime.service import TRANSPORT_CHANNEL, Closed
from qanat.wire.control import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    Goodbye,
    Hello,
    Identity,
    Refuse,
    Refused,
    Welcome,
    agree,
    decode_control,
    encode_control,
)
from qanat.wire.frame import Frame, FrameType, MalformedFrame, encode

_T = TypeVar("_T")

Admit = Callable[[Connection, Identity], None]
"""Looks at who wants in; raises `Refused` to keep it out."""


class CannotConnect(RemoteError):
    """Nobody answers there, or not in time, or not as a peer would. `code` is for programs; `refused` says
    that the machine answered for its port: nobody listens there."""

    def __init__(self, code: str, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.refused = refused


class Accepting:
    """The listening end: waits for HELLO, answers, opens."""

    def __init__(
        self,
        identity: Identity,
        admit: Admit | None = None,
        capabilities: tuple[str, ...] = (),
        on_begin: Callable[[Connection], None] = lambda _connection: None,
    ) -> None:
        self.short_way: tuple[str, str] = ("", "")
        """The address that is dialled directly, and the name of the Unix socket beside it."""
        self._identity = identity
        self._admit = admit
        self._capabilities = capabilities
        self._on_begin = on_begin

    def begin(self, connection: Connection) -> None:
        """Says nothing yet: the dialling end speaks first."""
        self._on_begin(connection)

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        hello = _expect(frame, Hello)
        try:
            version = agree(hello)
            if hello.identity.cluster != self._identity.cluster:
                raise Refused(
                    "cluster",
                    f"this is cluster {self._identity.cluster!r}, and the peer belongs to"
                    f" {hello.identity.cluster!r}; check the address or the cluster setting",
                )
            address, name = self.short_way
            # Whoever dialled another address came through something in between, which is not to be passed by.
            local = name if hello.dialled and hello.dialled == address else ""
            if self._admit is not None and not local:
                self._admit(connection, hello.identity)
        except Refused as error:
            refuse = encode_control(Refuse(error.code, str(error)))
            connection.peer = hello.identity
            connection.send_parts(encode(FrameType.REFUSE, TRANSPORT_CHANNEL, refuse))
            connection.refuse(error.code, str(error))
            return
        welcome = encode_control(Welcome(self._identity, version, self._capabilities, local))
        connection.send_parts(encode(FrameType.WELCOME, TRANSPORT_CHANNEL, welcome))
        if local:
            connection.peer = hello.identity
            connection.refuse("local", "there is a shorter way")
            return
        connection.open(hello.identity, version, hello.capabilities)

    def on_failed(self, connection: Connection, reason: Closed) -> None:
        """Nothing: the traffic counted it."""


class Dialling:
    """The dialling end: says HELLO, waits. `done` resolves when the connection is up, or to the refusal.

    If it told what it `dialled` and is offered the short way, `done` resolves to that, and the connection is
    closed.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        admit: Admit | None = None,
        capabilities: tuple[str, ...] = (),
        credentials: bytes = b"",
        dialled: str = "",
    ) -> None:
        self._hello = Hello(
            identity,
            OLDEST_VERSION,
            NEWEST_VERSION,
            capabilities=capabilities,
            credentials=credentials,
            dialled=dialled,
        )
        self._admit = admit
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def begin(self, connection: Connection) -> None:
        connection.send_parts(encode(FrameType.HELLO, TRANSPORT_CHANNEL, encode_control(self._hello)))

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        if frame.type == FrameType.REFUSE:
            refuse = _expect(frame, Refuse)
            self._fail(Refused(refuse.code, refuse.reason))
            connection.abort("refused", f"{refuse.code}: {refuse.reason}")
            return
        if frame.type == FrameType.GOODBYE:
            gone = _expect(frame, Goodbye)
            told = f"{connection.remote} would not shake hands ({gone.code}: {printable(gone.reason)})"
            self._fail(CannotConnect(gone.code, told))
            connection.abort("refused", f"{gone.code}: {gone.reason}")
            return
        welcome = _expect(frame, Welcome)
        if not OLDEST_VERSION <= welcome.version <= NEWEST_VERSION:
            raise MalformedFrame(
                "malformed", f"the peer chose version {welcome.version}, which was not offered"
            )
        if welcome.local and self._hello.dialled:
            if not self.done.done():
                self.done.set_result(welcome.local)
            connection.peer = welcome.identity
            connection.abort("local", "the short way is taken")
            return
        try:
            if self._admit is not None:
                self._admit(connection, welcome.identity)
        except Refused as error:
            connection.peer = welcome.identity
            self._fail(error)
            connection.refuse(error.code, str(error))
            return
        connection.open(welcome.identity, welcome.version, welcome.capabilities)
        if not self.done.done():
            self.done.set_result("")

    def on_failed(self, connection: Connection, reason: Closed) -> None:
        self._fail(CannotConnect(reason.code, f"{connection.remote} did not shake hands ({reason})"))

    def _fail(self, error: RemoteError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def _expect(frame: Frame, kind: type[_T]) -> _T:
    value = decode_control(frame.type, frame.control) if frame.channel == TRANSPORT_CHANNEL else None
    if not isinstance(value, kind):
        raise MalformedFrame(
            "malformed", f"frame type {frame.type} on channel {frame.channel} during the handshake"
        )
    return value
