"""Peers that say nothing or take nothing: the dead are told from those that merely rest."""

import asyncio
from typing import Any

from tests.integration.listening import CHANNEL, RawPeer, Recorder, serve
from tests.waiting import until

from qanat.runtime.dialer import dial
from qanat.runtime.settings import TransportSettings
from qanat.wire.control import Identity
from qanat.wire.frame import FrameType


def test_half_open_peer_is_found_silent(go: Any) -> None:
    async def main() -> None:
        server = await serve(heartbeat_ms=30, heartbeat_misses=3)
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        await until(lambda: server.closes("silent") == 1)
        frames = await peer.ended()
        assert {f.type for f in frames} == {FrameType.PING}
        assert server.service.closed[0].code == "silent"
        await server.listener.close()

    go(main)


def test_heartbeats_keep_an_idle_connection(go: Any) -> None:
    async def main() -> None:
        server = await serve(heartbeat_ms=20, heartbeat_misses=2)
        connection = await dial(server.url, Identity("idle", role="client"), {})
        await until(lambda: sum(server.traffic.rtt.counts) > 8)
        assert not connection.closing
        assert server.service.closed == []
        connection.close()
        await server.listener.close()

    go(main)


def test_peer_that_does_not_read_is_found_stalled(go: Any) -> None:
    async def main() -> None:
        server = await serve(heartbeat_ms=20, write_stall_ms=200, heartbeat_misses=1000)
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        (connection,) = server.service.connections
        part = bytes(65536)
        while connection.writable:
            connection.send(50, CHANNEL, b"", [part])
            await asyncio.sleep(0)
        await until(lambda: server.closes("stalled") == 1)
        peer.socket.close()
        await server.listener.close()

    go(main)


def test_a_reader_on_pause_is_not_taken_for_dead(go: Any) -> None:
    async def main() -> None:
        server = await serve(heartbeat_ms=20, heartbeat_misses=2)
        client = Recorder()
        connection = await dial(
            server.url,
            Identity("pausing", role="client"),
            {CHANNEL: client},
            settings=TransportSettings(heartbeat_ms=20, heartbeat_misses=2),
        )
        connection.pause_reading()
        (at_server,) = server.service.connections
        at_server.send(50, CHANNEL, b"later")
        seen = at_server.bytes_in
        await until(lambda: at_server.bytes_in > seen + 10 * 24)
        assert client.frames == []
        assert not connection.closing
        assert not at_server.closing
        connection.resume_reading()
        await until(lambda: client.frames)
        connection.close()
        await server.listener.close()

    go(main)
