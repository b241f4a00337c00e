"""Heartbeats of one connection, and the two ways in which it can be found dead."""

import asyncio
from typing import TYPE_CHECKING

from qanat.runtime.service import TRANSPORT_CHANNEL
from qanat.wire.control import Ping, encode_control
from qanat.wire.frame import FrameType, encode

if TYPE_CHECKING:
    from qanat.runtime.connection import Connection


class Liveness:
    """Looks at its connection once per heartbeat interval.

    Nothing heard since the last look: a PING goes out; after `heartbeat_misses` such looks the peer is
    `silent`. Bytes queued and not one of them taken for `write_stall_ms`: the peer is `stalled`. An end that
    has paused its own reading cannot hear anything: it judges nobody silent, and says by one-way PINGs that
    it is alive itself.
    """

    __slots__ = ("_connection", "_heard_bytes", "_misses", "_stuck_since", "_taken_bytes", "_timer")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None
        self._heard_bytes = 0
        self._misses = 0
        self._taken_bytes = 0
        self._stuck_since = 0.0

    def start(self) -> None:
        self._heard_bytes = self._connection.bytes_in
        self._stuck_since = asyncio.get_running_loop().time()
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connection.settings.heartbeat_ms / 1000, self._look)

    def _look(self) -> None:
        connection = self._connection
        settings = connection.settings
        now = asyncio.get_running_loop().time()
        queued = connection.queued_bytes
        taken = connection.bytes_out - queued
        if not queued or taken != self._taken_bytes:
            self._taken_bytes = taken
            self._stuck_since = now
        elif settings.write_stall_ms and (now - self._stuck_since) * 1000 >= settings.write_stall_ms:
            connection.abort(
                "stalled", f"took none of {queued} queued bytes for {settings.write_stall_ms} ms"
            )
            return
        if not connection.hearing:
            self._misses = 0
            self._ping(now, oneway=True)
        elif connection.bytes_in != self._heard_bytes:
            self._heard_bytes = connection.bytes_in
            self._misses = 0
        elif self._misses >= settings.heartbeat_misses:
            connection.abort(
                "silent", f"not heard of for {self._misses} heartbeats of {settings.heartbeat_ms} ms"
            )
            return
        else:
            if not self._misses:
                connection.release_buffers()
            self._misses += 1
            self._ping(now, oneway=False)
        self._arm()

    def _ping(self, now: float, *, oneway: bool) -> None:
        if not self._connection.writable:
            return  # what is queued will be sign of life enough, and the queue must not grow by our doing
        ping = encode_control(Ping(int(now * 1e6), oneway))
        self._connection.send_parts(encode(FrameType.PING, TRANSPORT_CHANNEL, ping))
