"""A listener that keeps what it is told, and peers that speak to it in raw bytes."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from tests.waiting import DEADLINE_S

from qanat.runtime.connection import Connection
from qanat.runtime.listener import Listener, listen
from qanat.runtime.metrics import Metrics
from qanat.runtime.service import Closed, Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url
from qanat.wire.control import Hello, Identity, encode_control
from qanat.wire.frame import Frame, FrameType, encode
from qanat.wire.reader import FrameReader

CHANNEL = 1


class Recorder(Service):
    """Keeps what it is told; echoes type 40."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes, bytes]] = []
        self.connections: list[Connection] = []
        self.closed: list[Closed] = []
        self.chunks = 0
        self.writable = 0
        self.on_each: Callable[[Connection, Frame], None] = lambda _c, _f: None

    def on_connect(self, connection: Connection) -> None:
        self.connections.append(connection)

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        self.frames.append((frame.type, frame.control, bytes(frame.attachment)))
        self.on_each(connection, frame)
        if frame.type == 40:
            connection.send(41, CHANNEL, frame.control, [frame.attachment])

    def on_chunk_end(self, connection: Connection) -> None:
        self.chunks += 1

    def on_writable(self, connection: Connection) -> None:
        self.writable += 1

    def on_close(self, connection: Connection, reason: Closed) -> None:
        self.closed.append(reason)


class Server:
    """A listener with a recorder, and its counters."""

    def __init__(self, listener: Listener, service: Recorder, traffic: Traffic) -> None:
        self.listener, self.service, self.traffic = listener, service, traffic

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.listener.port)

    @property
    def url(self) -> Url:
        return Url(*self.address)

    def closes(self, reason: str) -> int:
        return self.traffic.closes.labels(reason).value


async def serve(port: int = 0, **settings: Any) -> Server:
    service, traffic = Recorder(), Traffic(Metrics())
    listener = await listen(
        "127.0.0.1",
        port,
        Identity("server"),
        {CHANNEL: service},
        settings=TransportSettings(**settings),
        traffic=traffic,
    )
    return Server(listener, service, traffic)


class RawPeer:
    """A blocking-free raw socket that speaks bytes, well or badly."""

    def __init__(self, server: Server) -> None:
        self.loop = asyncio.get_running_loop()
        self.socket = socket.create_connection(server.address)
        self.socket.setblocking(False)
        self.reader = FrameReader()

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.socket, data)

    async def frame(self) -> Frame | None:
        """The next frame; None at the end of the stream."""
        while (frame := self.reader.next_frame()) is None:
            try:
                data = await asyncio.wait_for(self.loop.sock_recv(self.socket, 65536), DEADLINE_S)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.reader.feed(data)
        return frame

    async def hello(self, **fields: Any) -> Frame | None:
        hello = Hello(Identity("raw", role="client"), **fields)
        await self.send(b"".join(encode(FrameType.HELLO, 0, encode_control(hello))))
        return await self.frame()

    async def ended(self) -> list[Frame]:
        frames = []
        while (frame := await self.frame()) is not None:
            frames.append(frame)
        self.socket.close()
        return frames
