"""A peer that speaks valid frames and says in them what it likes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

import msgspec
from tests.waiting import DEADLINE_S

from qanat.events.errors import RemoteError
from qanat.runtime.connection import Connection
from qanat.runtime.datagram import Envelope
from qanat.runtime.dialer import dial
from qanat.runtime.service import STREAMS_CHANNEL, Closed, Service
from qanat.runtime.url import parse_url
from qanat.wire.control import Identity
from qanat.wire.frame import Bytes, Frame, FrameType, encode
from qanat.wire.streams import decode_control, encode_control


class Peer(Service):
    """One connection; what is heard on its channels is kept, up to a bound."""

    def __init__(self) -> None:
        self.connection: Connection
        self.heard: asyncio.Queue[tuple[int, bytes, bytes]] = asyncio.Queue()
        self.closed: Closed | None = None

    @classmethod
    async def connect(
        cls,
        url: str,
        name: str = "hostile",
        *,
        role: str = "client",
        channels: Iterable[int] = (STREAMS_CHANNEL,),
        incarnation: int = 1,
    ) -> Peer:
        peer = cls()
        services = dict.fromkeys(channels, peer)
        peer.connection = await dial(url, Identity(name, incarnation, role=role), services)
        return peer

    def on_connect(self, connection: Connection) -> None:
        self.connection = connection

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        if self.heard.qsize() < 10_000:
            self.heard.put_nowait((frame.type, bytes(frame.control), bytes(frame.attachment)))

    def on_close(self, connection: Connection, reason: Closed) -> None:
        self.closed = reason
        self.heard.put_nowait((0, b"", b""))

    async def ask(self, type_: int, message: Any, attachments: Iterable[Bytes] = ()) -> Any:
        """The next answer on the streams channel; a RemoteError if the connection was closed instead."""
        self.connection.send(type_, STREAMS_CHANNEL, encode_control(message), list(attachments))
        async with asyncio.timeout(DEADLINE_S):
            heard, control, _ = (0, b"", b"") if self.closed else await self.heard.get()
        if not heard:
            raise RemoteError(f"the connection was closed: {self.closed}")
        return decode_control(heard, control)

    def say(
        self, channel: int, control: bytes, attachments: Iterable[Bytes] = (), type_: int = FrameType.MESSAGE
    ) -> None:
        self.connection.send(type_, channel, control, list(attachments))

    async def close(self) -> None:
        self.connection.close("closed")
        await self.connection.wait_closed()


def datagram(
    url: str,
    sender: str,
    channel: int,
    message: bytes,
    attachments: Iterable[Bytes] = (),
    *,
    cluster: str = "qanat",
    sock: socket.socket | None = None,
) -> None:
    """One datagram, under any name."""
    where = parse_url(url)
    envelope = encode_control(Envelope(cluster, sender, msgspec.Raw(message)))
    data = b"".join(encode(FrameType.CAST, channel, envelope, list(attachments)))
    if sock is not None:
        sock.sendto(data, (where.host, where.port))
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.sendto(data, (where.host, where.port))
