"""Fuzzers of whole processes: valid frames with hostile values, on every channel, in datagrams, in
handshakes, and at the port for operators."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import suppress
from typing import Any

import msgspec
from tests.hostile_values import Maker
from tests.integration.hostile import Peer, datagram

from qanat.coordinate.messages import TO_CLIENT
from qanat.coordinate.server import CoordinatorServer
from qanat.events.batch import stream_id
from qanat.events.errors import QanatError
from qanat.protocols.chain.messages import MESSAGES as TO_CHAIN
from qanat.protocols.mesh import ProxyMeshes
from qanat.protocols.proxy_level.messages import MESSAGES as TO_PROXY_LEVEL
from qanat.protocols.publisher.messages import TO_PUBLISHER, TO_SUBSCRIBER
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.runtime.url import parse_url
from qanat.wire import streams
from qanat.wire.control import Hello, Identity
from qanat.wire.frame import Bytes, FrameType, encode
from qanat.wire.messages import MessageCodec

STREAM_FRAMES: dict[int, type[msgspec.Struct]] = streams._STRUCTS
CLIENT_FRAMES = [
    streams.OPEN,
    streams.PUBLISH,
    streams.PUBLISH,
    streams.SUBSCRIBE,
    streams.CREDIT,
    streams.UNSUBSCRIBE,
    streams.LOOK,
    streams.ASK,
]
REPLICA = (*TO_CHAIN, *TO_PROXY_LEVEL, *TO_CLIENT)
"""What a replica takes."""
MACHINES: dict[int, list[MessageCodec[Any]]] = {
    16: [
        MessageCodec(kinds)
        for kinds in (
            REPLICA,
            CoordinatorServer.message_types,
            (*TO_PUBLISHER, *TO_SUBSCRIBER),
        )
    ],
    17: [MessageCodec(ProxyMeshes.message_types)],
}
KINDS: dict[int, list[Any]] = {
    16: [REPLICA, CoordinatorServer.message_types, (*TO_PUBLISHER, *TO_SUBSCRIBER)],
    17: [ProxyMeshes.message_types],
}
FRAMES_EACH = 20


class Fuzzer:
    """One seed; `known` are names that its victims know, `names` those under which it comes."""

    def __init__(self, seed: int, *known: str, names: tuple[str, ...] = ()) -> None:
        self.rng = random.Random(seed)
        self.maker = Maker(self.rng, 1, 2, 7, *(stream_id(name) for name in known), *known)
        self.names = ("stranger", "größe", "a@127.0.0.1:9", *names)
        self.said = 0

    # --- what it says -----------------------------------------------------------------------------------

    def attachments(self) -> list[Bytes]:
        rng = self.rng
        data: list[Bytes] = [bytes(self.maker.batch().encode()) for _ in range(rng.choice((0, 1, 1, 2, 30)))]
        match rng.randrange(6):
            case 0 if data:
                spoilt = bytearray(data[0])
                for _ in range(rng.choice((1, 8))):
                    spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
                data[0] = bytes(spoilt)
            case 1 if data:
                data[-1] = data[-1][: rng.randrange(len(data[-1]))]
            case 2:
                data.append(rng.randbytes(rng.choice((1, 8, 80, 5_000))))
        return data

    def control(self, message: Any) -> bytes:
        choice = self.rng.random()
        if choice < 0.1:
            return msgspec.msgpack.encode(self.maker.spoilt(message))
        if choice < 0.12:
            return self.rng.randbytes(self.rng.choice((0, 1, 30)))
        return msgspec.msgpack.encode(message)

    def stream_frame(self) -> tuple[int, bytes]:
        # What only a server says ends the connection.
        type_ = self.rng.choice(list(STREAM_FRAMES) if self.rng.random() < 0.03 else CLIENT_FRAMES)
        return type_, self.control(self.maker.message(STREAM_FRAMES[type_]))

    def machine_frame(self, channel: int) -> tuple[bytes, list[Bytes]]:
        rng = self.rng
        number = rng.randrange(len(MACHINES[channel]))
        message = self.maker.message(rng.choice(list(KINDS[channel][number])))
        said = MACHINES[channel][number].encode(message)
        control: bytes = bytes(said[0])
        attached: list[Bytes] = [bytes(part) for part in said[1]]
        if rng.random() < 0.1:
            control = control[: rng.randrange(len(control) + 1)] + rng.randbytes(rng.choice((0, 3)))
        return control, attached if rng.random() < 0.8 else self.attachments()

    # --- how it says it ---------------------------------------------------------------------------------

    async def connection(self, url: str, channels: tuple[int, ...]) -> None:
        """Some frames on one connection, which it may leave at any moment."""
        rng = self.rng
        name = rng.choice(self.names)
        role = rng.choice(("client", "client", "node", "replica"))
        try:
            async with asyncio.timeout(20):
                peer = await Peer.connect(
                    url,
                    name,
                    role=role,
                    channels=(STREAMS_CHANNEL, 16, 17),
                    incarnation=rng.choice((1, 1 << 62)),
                )
        except (QanatError, OSError, TimeoutError):
            return
        for _ in range(FRAMES_EACH):
            channel = rng.choice(channels)
            if channel in MACHINES:
                control, attached = self.machine_frame(channel)
                type_ = rng.choice(
                    (FrameType.MESSAGE,) * 8
                    + (FrameType.COMPRESSED, FrameType.PLACED, FrameType.SHELF, FrameType.TAKEN)
                )
                peer.say(channel, control, attached, type_)
            elif channel == STREAMS_CHANNEL:
                number, control = self.stream_frame()
                peer.say(channel, control, self.attachments() if rng.random() < 0.5 else (), number)
            else:
                peer.say(channel, rng.randbytes(9), (), rng.randrange(256))
            self.said += 1
            if rng.random() < 0.2:
                await asyncio.sleep(0)
                self._listen(peer)
            if peer.closed is not None:
                break
        await asyncio.sleep(0.005)
        self._listen(peer)
        if rng.random() < 0.5:
            peer.connection.abort("closed")
        else:
            peer.connection.close("closed")

    def _listen(self, peer: Peer) -> None:
        while not peer.heard.empty():
            type_, control, _ = peer.heard.get_nowait()
            if type_ in STREAM_FRAMES:
                with suppress(QanatError):
                    self.maker.hear(streams.decode_control(type_, control))

    def datagrams(self, url: str, count: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            mine = f"me@127.0.0.1:{sock.getsockname()[1]}"
            for _ in range(count):
                channel = self.rng.choice((16, 17, 17, 17))
                control, attached = self.machine_frame(channel)
                sender = self.rng.choice((mine, mine, *self.names, ""))
                with suppress(OSError, QanatError):
                    datagram(url, sender, channel, control or b"\xc0", attached, sock=sock)
                self.said += 1

    async def handshake(self, url: str) -> None:
        """A HELLO that was changed, whole or in pieces."""
        rng, where = self.rng, parse_url(url)
        hello = msgspec.msgpack.encode(Hello(Identity("stranger", 1, role="client"), 1, 1))
        if rng.random() < 0.5:
            hello = msgspec.msgpack.encode(self.maker.spoilt(self.maker.message(Hello)))
        data = bytearray(b"".join(encode(FrameType.HELLO, 0, hello)))
        for _ in range(rng.choice((0, 1, 3))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = rng.choice((len(data), rng.randrange(len(data))))
        await self.raw(where.host, where.port, bytes(data[:cut]))

    async def request(self, url: str) -> None:
        """Of an operator, or nearly."""
        rng = self.rng
        host, _, port = url.removeprefix("http://").rpartition(":")
        line = (
            rng.choice(("GET", "POST", "PUT", "G\x00T", ""))
            + rng.choice((" ", "", "  "))
            + rng.choice(
                (
                    "/status",
                    "/metrics",
                    "/healthz",
                    "/limits",
                    "/move",
                    "/caravans?stream=%00%1b",
                    "/" + "x" * 9_000,
                    "*",
                    "//",
                )
            )
        )
        head = line + rng.choice((" HTTP/1.1", " HTTP/9", "")) + "\r\n"
        for _ in range(rng.choice((0, 1, 400))):
            head += (
                rng.choice(
                    (
                        "Content-Length: -1",
                        "Content-Length: 99999999999",
                        "Authorization: Bearer \xff",
                        "A: b",
                        ":",
                        "x",
                    )
                )
                + "\r\n"
            )
        await self.raw(host, int(port), (head + rng.choice(("\r\n", "", "\r\n{}"))).encode("latin-1"))

    async def raw(self, host: str, port: int, data: bytes) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    writer.write(data)
                    await writer.drain()
                    if self.rng.random() < 0.3:
                        writer.write_eof()
                        await reader.read(1_000)
                finally:
                    writer.transport.abort()
