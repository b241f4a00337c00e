"""A listener that closes: what is queued arrives, and the farewell is heard."""

import asyncio
from typing import Any

import pytest
from tests.integration.listening import CHANNEL, RawPeer, Recorder, serve
from tests.waiting import until

from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.wire.control import Identity


def test_closing_the_listener_sends_what_is_queued(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        client = Recorder()
        connection = await dial(server.url, Identity("me", role="client"), {CHANNEL: client})
        await until(lambda: server.service.connections)
        for i in range(50):
            server.service.connections[0].send(50, CHANNEL, bytes([i]), [bytes(50_000)])
        await server.listener.close()
        assert (await connection.wait_closed()).code == "shutdown"
        assert [control[0] for _, control, _ in client.frames] == list(range(50))

    go(main)


def test_a_stop_is_heard_by_a_producer_at_full_speed(go: Any) -> None:
    """The bytes it still sends must not make the server's kernel reset the connection under the farewell."""

    async def main() -> None:
        for _ in range(5):
            server = await serve()

            class Flood(Recorder):
                def on_writable(self, connection: Connection) -> None:
                    while connection.writable:
                        connection.send(50, CHANNEL, b"", [bytes(50_000)])

            flood = Flood()
            connection = await dial(server.url, Identity("flood", role="client"), {CHANNEL: flood})
            flood.on_writable(connection)
            await until(lambda: len(server.service.frames) > 20)  # noqa: B023
            for i in range(20):
                server.service.connections[0].send(51, CHANNEL, bytes([i]))
            await server.listener.close()
            assert (await connection.wait_closed()).code == "shutdown"
            assert [control[0] for _, control, _ in flood.frames] == list(range(20))

    go(main)


def test_a_peer_that_ignores_the_farewell_is_cut_off(go: Any) -> None:
    async def main() -> None:
        server = await serve(close_ms=100)
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        await server.listener.close()
        assert not server.listener.connections
        await until(lambda: server.closes("shutdown") == 1)
        peer.socket.close()

    go(main)


def test_whoever_closes_can_be_stopped_even_as_the_last_peer_goes(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        closing = asyncio.create_task(server.listener.close())
        await asyncio.sleep(0)
        server.listener._empty.set()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        peer.socket.close()

    go(main)
