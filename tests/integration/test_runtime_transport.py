"""Frames over real sockets: they go both ways, wait while a reader pauses, and are bounded while they
wait."""

import asyncio
import random
from typing import Any

from tests.integration.listening import CHANNEL, RawPeer, Recorder, serve
from tests.waiting import until

from qanat.runtime.dialer import dial
from qanat.runtime.settings import TransportSettings
from qanat.wire.control import Identity
from qanat.wire.frame import encode


def test_frames_both_ways(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        client = Recorder()
        connection = await dial(str(server.url), Identity("me", role="client"), {CHANNEL: client})
        assert connection.peer.name == "server"
        attachments = [random.Random(size).randbytes(size) for size in (0, 1, 100, 5_000, 300_000, 2_000_000)]
        for i, data in enumerate(attachments):
            connection.send(
                40, CHANNEL, bytes([i]), [data[: len(data) // 2], memoryview(data)[len(data) // 2 :]]
            )
        await until(lambda: len(client.frames) == len(attachments))
        assert client.frames == [(41, bytes([i]), data) for i, data in enumerate(attachments)]
        assert server.service.connections[0].peer.name == "me"
        connection.close()
        assert (await connection.wait_closed()).code == "closed"
        await until(lambda: server.service.closed)
        assert server.service.closed[0].code == "goodbye"
        await server.listener.close()

    go(main)


def test_frames_that_come_together_are_answered_together(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        await peer.send(b"".join(b"".join(encode(40, CHANNEL, bytes([i]))) for i in range(100)))
        for i in range(100):
            frame = await peer.frame()
            assert frame is not None
            assert frame.control == bytes([i])
        assert server.service.chunks < 50
        peer.socket.close()
        await server.listener.close()

    go(main)


def test_pause_takes_effect_before_the_next_frame(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        server.service.on_each = lambda connection, _frame: connection.pause_reading()
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        await peer.send(b"".join(b"".join(encode(50, CHANNEL, bytes([i]))) for i in range(5)))
        for i in range(1, 6):
            await until(lambda i=i: len(server.service.frames) >= i)  # type: ignore[misc]
            await asyncio.sleep(0.01)  # the next one's chance to come too early
            assert len(server.service.frames) == i
            server.service.connections[0].resume_reading()
        peer.socket.close()
        await server.listener.close()

    go(main)


def test_back_pressure_reaches_the_producer(go: Any) -> None:
    """A receiver on pause: the producer's `writable` turns False and what is queued stays bounded."""

    async def main() -> None:
        high, low = 256 * 1024, 64 * 1024
        server = await serve()
        producer = Recorder()
        connection = await dial(
            server.url,
            Identity("producer", role="client"),
            {CHANNEL: producer},
            settings=TransportSettings(high_water_bytes=high, low_water_bytes=low),
        )
        await until(lambda: server.service.connections)
        (consumer,) = server.service.connections
        consumer.pause_reading()
        part = bytes(32 * 1024)
        sent = 0
        while connection.writable:
            connection.send(50, CHANNEL, b"", [part])
            sent += 1
            await asyncio.sleep(0)
        assert connection.queued_bytes < high + 64 * 1024
        assert server.service.frames == []
        assert producer.writable == 0
        consumer.resume_reading()
        await until(lambda: producer.writable == 1)
        await until(lambda: len(server.service.frames) == sent)
        connection.close()
        await server.listener.close()

    go(main)


def test_a_sender_that_does_not_heed_is_cut_off_at_the_bound(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        producer = Recorder()
        connection = await dial(
            server.url,
            Identity("flood", role="client"),
            {CHANNEL: producer},
            settings=TransportSettings(
                high_water_bytes=1024, low_water_bytes=0, queue_limit_bytes=1024 * 1024
            ),
        )
        await until(lambda: server.service.connections)
        server.service.connections[0].pause_reading()
        part = bytes(256 * 1024)
        most = 0
        while not connection.closing:
            connection.send(50, CHANNEL, b"", [part])
            most = max(most, connection.queued_bytes)
            await asyncio.sleep(0)
        assert (await connection.wait_closed()).code == "overflow"
        assert most <= 1024 * 1024 + 300 * 1024
        await server.listener.close()

    go(main)
