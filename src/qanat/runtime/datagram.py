"""UDP: one frame per datagram, bounded in size, dropped and counted when anything is wrong with it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from qanat.events.errors import RemoteError
from qanat.events.ranges import NodeName
from qanat.runtime.listener import CannotListen
from qanat.runtime.members import came_from
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import format_address
from qanat.wire.control import Identity
from qanat.wire.frame import Bytes, Frame, FrameType, MalformedFrame, decode_one, encode

log = logging.getLogger("qanat.datagram")


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """Who casts what; the message itself is MessagePack inside."""

    cluster: NodeName
    sender: NodeName
    message: msgspec.Raw


Receiver = Callable[[str, bytes, memoryview], None]
"""Takes a sender's name, a message's control part and its attachment; raises `RemoteError` if it is bad."""

Came = Callable[[str, str, int], None]

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Envelope)


class DatagramEndpoint(asyncio.DatagramProtocol):
    """A UDP socket shared by all channels of a node. Made by `open_datagrams`.

    Nobody is told of a datagram that did not go or was not taken: `transport_datagrams_dropped` counts
    them by reason (`over_limit`, `malformed`, `cluster`, `forged`, `unknown_channel`, `busy`, `unsent`).
    """

    def __init__(
        self,
        identity: Identity,
        receivers: Mapping[int, Receiver],
        settings: TransportSettings,
        traffic: Traffic,
        came: Came = lambda _name, _host, _port: None,
    ) -> None:
        self.port = 0
        self._identity = identity
        self._receivers = receivers
        self._settings = settings
        self._traffic = traffic
        self._transport: asyncio.DatagramTransport | None = None
        self._full = False
        self._came = came

    def send(self, host: str, port: int, channel: int, message: bytes, attachments: list[Bytes]) -> bool:
        """Casts one message to a numeric address; False when it was dropped here."""
        envelope = _encode(Envelope(self._identity.cluster, self._identity.name, msgspec.Raw(message)))
        data = b"".join(encode(FrameType.CAST, channel, envelope, attachments))
        if len(data) > self._settings.datagram_limit_bytes:
            return self._drop("over_limit")
        if self._transport is None or self._full:
            return self._drop("busy")
        try:
            self._transport.sendto(data, (host, port))
        except (OSError, ValueError):
            return self._drop("unsent")
        self._traffic.datagrams_out.value += 1
        return True

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def error_received(self, exc: Exception) -> None:
        """An ICMP answer to something sent earlier: datagrams may be lost, and this one was."""
        self._drop("unsent")

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        try:
            frame = decode_one(data, limit=self._settings.datagram_limit_bytes)
            self._take(frame, str(addr[0]), int(addr[1]))
        except RemoteError as error:
            code = error.code if isinstance(error, MalformedFrame) else "malformed"
            self._drop(code)
            log.debug("datagram dropped", extra={"from": addr, "reason": str(error)})
        except Exception:
            log.exception("a receiver of datagrams failed", extra={"from": addr})
            self._drop("handler_error")

    def _take(self, frame: Frame, host: str, port: int) -> None:
        if frame.type != FrameType.CAST:
            raise MalformedFrame("malformed", f"frame type {frame.type} in a datagram")
        try:
            envelope = _decoder.decode(frame.control)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFrame("malformed", f"not an envelope: {error}") from None
        if envelope.cluster != self._identity.cluster:
            raise MalformedFrame("cluster", f"a datagram of cluster {envelope.cluster!r}")
        if not came_from(envelope.sender, host, port):
            raise MalformedFrame(
                "forged", f"a datagram of {envelope.sender!r} came from {format_address(host, port)}"
            )
        receiver = self._receivers.get(frame.channel)
        if receiver is None:
            raise MalformedFrame("unknown_channel", f"nobody takes datagrams on channel {frame.channel}")
        self._came(envelope.sender, host, port)
        receiver(envelope.sender, bytes(envelope.message), frame.attachment)
        self._traffic.datagrams_in.value += 1

    def _drop(self, reason: str) -> bool:
        self._traffic.datagrams_dropped.labels(reason).value += 1
        return False


async def open_datagrams(
    host: str,
    port: int,
    identity: Identity,
    receivers: Mapping[int, Receiver],
    *,
    settings: TransportSettings | None = None,
    traffic: Traffic | None = None,
    came: Came = lambda _name, _host, _port: None,
) -> DatagramEndpoint:
    """Binds a UDP socket (port 0: any free one) and hands what arrives to `receivers`, by channel; `came` is
    told first, from where it came."""
    loop = asyncio.get_running_loop()
    endpoint = DatagramEndpoint(
        identity, receivers, settings or TransportSettings(), traffic or Traffic(), came
    )
    try:
        await loop.create_datagram_endpoint(lambda: endpoint, local_addr=(host, port))
    except OSError as error:
        raise CannotListen(
            f"cannot take datagrams on {format_address(host, port)}: {error.strerror or error}"
        ) from None
    return endpoint
