"""One framed, bounded, watched connection between two processes."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Protocol

from qanat.events.errors import RemoteError
from qanat.runtime.liveness import Liveness
from qanat.runtime.sending import Sending
from qanat.runtime.service import TRANSPORT_CHANNEL, Closed, Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.wire.control import Goodbye, Identity, Ping, Pong, decode_control, encode_control
from qanat.wire.frame import CONTROL_LIMIT, Frame, FrameType, MalformedFrame, encode
from qanat.wire.reader import FrameReader

log = logging.getLogger("qanat.transport")

_HANDSHAKE_CONTROL_BYTES = 16 * 1024
_TURN_S = 0.01
"""For so long the frames of one connection are handled before the others get their turn: a receive buffer
holds tens of thousands of small ones."""


_LOCAL_SEND_BYTES = 2 * 1024 * 1024
"""Under way in a Unix socket: the largest usual frames as a whole, so that a sender goes on to the next
receiver, and a receiver is woken once. With the 208 KiB that systems give, they wake each other five times a
MiB."""
_SO_SNDBUFFORCE = 32
_PEER_CREDENTIALS = struct.Struct("3i")
"""Process, user and group (unix(7), SO_PEERCRED)."""


class Handshake(Protocol):
    """What a connection does before it is up; see `qanat.runtime.handshake`."""

    def begin(self, connection: "Connection") -> None: ...
    def on_frame(self, connection: "Connection", frame: Frame) -> None: ...
    def on_failed(self, connection: "Connection", reason: Closed) -> None: ...


class Connection(Sending):
    """A framed connection. Made by `listen` and `dial`, used by services.

    `pause_reading` stops frames at once, and through the full socket the peer's sender with them. For
    what bounds a sender see `Sending`.

    What a service sends on the connection it is just being called for goes out together after the last
    frame of the chunk; everything else goes out at once.
    """

    def __init__(
        self,
        handshake: Handshake,
        services: Mapping[int, Service],
        settings: TransportSettings,
        traffic: Traffic,
        *,
        dialled: bool,
        on_end: "Callable[[Connection], None] | None" = None,
    ) -> None:
        super().__init__(settings)
        self.traffic = traffic
        self.dialled = dialled
        self.peer = Identity(name="", role="")
        self.version = 0
        self.capabilities: frozenset[str] = frozenset()
        self.remote = "?"
        self.is_local = False
        """Whether it is a Unix socket, so that the peer is on this machine."""
        self.peer_user: int | None = None
        """Whose process the peer is, where the socket tells."""
        self.rtt_us = 0
        self.bytes_in = 0
        self.kept_bytes = 0
        """What services keep for it beside its buffers, about; they count it."""
        self.state: dict[int, object] = {}
        """Whatever the service of a channel keeps for this connection, by channel."""
        self._handshake = handshake
        self._known_services = services
        self._services: Mapping[int, Service] = {}
        self._reader = FrameReader(
            0,
            control_limit=_HANDSHAKE_CONTROL_BYTES,
            initial_bytes=settings.receive_buffer_bytes,
            largest_bytes=settings.largest_receive_buffer_bytes,
            grew=traffic.budget.grew,
        )
        self._paused = False
        self._throttled = False
        self._resuming = False
        self._waiting = False  # others have their turn before its next frame
        self._on_end = on_end
        self._liveness = Liveness(self)
        self._chunk_services: tuple[Service, ...] = ()

    # ------------------------------------------------------------------ for services

    @property
    def reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        """No more frames from here on, even of those already received, until `resume_reading`."""
        if not self._paused:
            self._paused = True
            if self._reason is None:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if not self._resuming:
                self._resuming = True
                self._loop.call_soon(self._resume)

    def release_buffers(self) -> None:
        """Gives the receive buffers back; the next byte makes a small new one."""
        self._reader.trim()

    # ------------------------------------------------------------------ for the budget of memory

    @property
    def received_bytes(self) -> int:
        """What its receive buffers take."""
        return self._reader.held_bytes

    @property
    def hearing(self) -> bool:
        """Whether what the peer says is read."""
        return not self._paused and not self._throttled

    def throttle(self) -> None:
        """Nothing more is received, though what has come is served; a service's pauses are another matter."""
        if not self._throttled and self._reason is None:
            self._throttled = True
            self._transport.pause_reading()

    def cut(self, code: str, detail: str) -> None:
        """Ends now; the peer is told why unless too much is queued for it already."""
        (self.refuse if self.writable else self.abort)(code, detail)

    def unthrottle(self) -> None:
        if self._throttled:
            self._throttled = False
            if not self._paused and not self._waiting and self._reason is None:
                self._transport.resume_reading()

    # ------------------------------------------------------------------ for the handshake

    def open(self, peer: Identity, version: int, capabilities: Iterable[str]) -> None:
        """The handshake succeeded: services take over."""
        self.peer, self.version, self.capabilities = peer, version, frozenset(capabilities)
        self.opened = True
        self._set_deadline(0, None)
        self._reader.limit = self.settings.frame_limit_bytes
        self._reader.control_limit = CONTROL_LIMIT
        self._services = self._known_services
        self._chunk_services = tuple(
            s for s in self._known_services.values() if type(s).on_chunk_end is not Service.on_chunk_end
        )
        self._liveness.start()
        self.traffic.opened(self)
        for service in self._services.values():
            service.on_connect(self)

    # ------------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        self.remote = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix"
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        elif sock is not None and sock.family == socket.AF_UNIX:
            self.is_local = True
            self.peer_user = _user_behind(sock)
            _enlarge(sock)
        self._transport.set_write_buffer_limits(
            high=self.settings.high_water_bytes, low=self.settings.low_water_bytes
        )
        if self._reason is not None:
            self._transport.abort()
            return
        self._set_deadline(self.settings.handshake_ms, self._handshake_late)
        self._handshake.begin(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        self._reader.advance(nbytes)
        if self._leaving:
            self._drain()
        else:
            self._dispatch()

    def eof_received(self) -> None:
        if self._reason is None:
            pending = self._reader.pending_bytes
            detail = f"in the middle of a frame, after {pending} bytes of it" if pending else ""
            self._reason = Closed("eof", detail)

    def pause_writing(self) -> None:
        self.writable = False
        self.traffic.write_pauses.value += 1

    def resume_writing(self) -> None:
        self.writable = True
        if self._reason is not None:
            return
        self._corked = True
        try:
            for service in self._services.values():
                if not self.writable:
                    break
                service.on_writable(self)
        except Exception as error:
            self.fault(error)
        finally:
            self._corked = False
            if self._out:
                self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        reason = self.closed or Closed("eof")
        self._liveness.stop()
        self.writable = False
        self._out = []
        self._out_bytes = 0
        self._reader.close()
        self.traffic.ended(self, reason)
        services, self._services = self._services, {}
        if not self.opened:
            self._handshake.on_failed(self, reason)
        for service in services.values():
            try:
                service.on_close(self, reason)
            except Exception:
                log.exception("service failed on_close", extra={"peer": self.label})
        if self._on_end is not None:
            self._on_end(self)

    # ------------------------------------------------------------------ inside

    @property
    def label(self) -> str:
        return f"{self.peer.name}@{self.remote}" if self.peer.name else self.remote

    def _dispatch(self) -> None:
        if self._waiting:
            return
        next_frame = self._reader.next_frame
        services = self._services
        reader = self._reader
        frames = 0
        until_s = 0.0
        self._corked = True
        try:
            while not self._paused and self._reason is None:
                frame = next_frame()
                if frame is None:
                    break
                frames += 1
                service = services.get(frame.channel)
                if service is not None:
                    service.on_frame(self, frame)
                else:
                    self._own_frame(frame)
                    services = self._services
                if (
                    not reader.pending_bytes
                ):  # as usual where events are few: no clock is asked, and nobody waits
                    break
                if not until_s:
                    until_s = perf_counter() + _TURN_S
                elif perf_counter() > until_s:
                    self._wait_a_turn()
                    break
            frame = None
            for service in self._chunk_services:
                service.on_chunk_end(self)
        except Exception as error:
            self.fault(error)
        finally:
            self._corked = False
            self.traffic.frames_in.value += frames
            if self._out:
                self._flush()

    def _wait_a_turn(self) -> None:
        """Nothing is read meanwhile, so that what waits does not grow."""
        if not self._paused and self._reason is None:
            self._waiting = True
            self._transport.pause_reading()
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._waiting = False
        if not self._paused and self._reason is None:
            self._dispatch()
            if self.hearing and not self._waiting and self._reason is None:
                self._transport.resume_reading()

    def _own_frame(self, frame: Frame) -> None:
        if not self.opened:
            self._handshake.on_frame(self, frame)
            return
        if frame.channel != TRANSPORT_CHANNEL:
            self.refuse(
                "unknown_channel", f"no service on channel {frame.channel} here: this node is of another kind"
            )
            return
        match decode_control(frame.type, frame.control):
            case Ping(sent_us, oneway):
                if not oneway:
                    pong = encode_control(Pong(sent_us))
                    self.send_parts(encode(FrameType.PONG, TRANSPORT_CHANNEL, pong))
            case Pong(sent_us):
                self.rtt_us = max(0, int(self._loop.time() * 1e6) - sent_us)
                self.traffic.rtt.observe(self.rtt_us / 1e6)
            case Goodbye(code, reason):
                detail = f"{code}: {reason}" if reason else code
                self._reason = Closed("shutdown" if code == "shutdown" else "goodbye", detail)
                self._transport.close()
                self._set_deadline(self.settings.close_ms, self._transport.abort)
            case other:
                raise MalformedFrame("malformed", f"a {type(other).__name__} frame after the handshake")

    def fault(self, error: Exception) -> None:
        """An exception while this connection was served costs this connection."""
        if isinstance(error, MalformedFrame):
            self.refuse(error.code, str(error))
        elif isinstance(error, RemoteError):
            self.close("protocol", str(error))
        else:
            log.error("service failed", exc_info=error, extra={"peer": self.label})
            self.close("handler_error", f"{type(error).__name__} while serving this connection")

    def _drain(self) -> None:
        """Throws away what comes after our GOODBYE, up to the peer's own."""
        try:
            while (frame := self._reader.next_frame()) is not None:
                if frame.channel == TRANSPORT_CHANNEL and frame.type == FrameType.GOODBYE:
                    self._transport.close()
        except MalformedFrame:
            self._transport.close()

    def _resume(self) -> None:
        self._resuming = False
        if self._paused or self._waiting or self._reason is not None:
            return
        self._next_turn()

    def _handshake_late(self) -> None:
        self.abort("handshake_timeout", f"no handshake within {self.settings.handshake_ms} ms")


def _user_behind(sock: socket.socket) -> int | None:
    """None where the system does not say it so."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    try:
        _, user, _ = _PEER_CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, option, _PEER_CREDENTIALS.size)
        )
    except OSError:
        return None
    return int(user)


def _enlarge(sock: socket.socket) -> None:
    """As far as we may: above the system's limit only for the superuser."""
    for option in (socket.SO_SNDBUF, _SO_SNDBUFFORCE):
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, _LOCAL_SEND_BYTES)
