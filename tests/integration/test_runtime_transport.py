"""Connections over real sockets: what they carry, what they bear, and what ends them."""

import asyncio
import random
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from qanat.runtime.connection import Connection
from qanat.runtime.dialer import CannotConnect, Dialer, dial
from qanat.runtime.listener import CannotListen, Listener, listen
from qanat.runtime.loop import run
from qanat.runtime.metrics import Metrics
from qanat.runtime.peers import Peers
from qanat.runtime.service import Closed, Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url
from qanat.wire.control import Hello, Identity, Refused, Welcome, decode_control, encode_control
from qanat.wire.frame import Frame, FrameType, encode
from qanat.wire.reader import FrameReader

CHANNEL = 1
DEADLINE_S = 20


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


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.002)


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


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def go(request: pytest.FixtureRequest) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    return lambda main: run(main, uvloop=request.param)


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


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n" + bytes(64), bytes(64), b"\xff" * 64])
def test_malformed_bytes_cost_that_connection_alone(go: Any, junk: bytes) -> None:
    async def main() -> None:
        server = await serve()
        good = await dial(server.url, Identity("good", role="client"), {CHANNEL: Recorder()})
        before, after = RawPeer(server), RawPeer(server)
        await before.send(junk)
        await before.ended()
        assert (await after.hello()) is not None
        await after.send(junk)
        frames = await after.ended()
        assert [f.type for f in frames] == [FrameType.GOODBYE]
        await until(lambda: server.closes("malformed") + server.closes("over_limit") == 2)
        good.send(40, CHANNEL, b"still here")
        await until(lambda: server.service.frames)
        good.close()
        await server.listener.close()

    go(main)


def test_over_limit_frame(go: Any) -> None:
    async def main() -> None:
        server = await serve(frame_limit_bytes=10_000)
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        await peer.send(b"".join(encode(40, CHANNEL, b"", [bytes(10_001)]))[:16])
        (goodbye,) = await peer.ended()
        assert b"over the limit of 10000" in goodbye.control
        await until(lambda: server.closes("over_limit") == 1)
        await server.listener.close()

    go(main)


def test_unknown_channel(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        await peer.send(b"".join(encode(40, 999)))
        (goodbye,) = await peer.ended()
        assert b"999" in goodbye.control
        await until(lambda: server.closes("unknown_channel") == 1)
        await server.listener.close()

    go(main)


def test_version_mismatch_says_why(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        peer = RawPeer(server)
        answer = await peer.hello(oldest=7, newest=9)
        assert answer is not None
        assert answer.type == FrameType.REFUSE
        assert b"7 to 9" in answer.control
        await peer.ended()
        await until(lambda: server.closes("version") == 1)
        await server.listener.close()

    go(main)


def test_another_cluster_is_refused(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        with pytest.raises(Refused, match="'elsewhere'") as caught:
            await dial(server.url, Identity("me", cluster="elsewhere"), {})
        assert caught.value.code == "cluster"
        await server.listener.close()

    go(main)


def test_full_server_refuses(go: Any) -> None:
    async def main() -> None:
        server = await serve(max_connections=1)
        first = await dial(server.url, Identity("a", role="client"), {})
        with pytest.raises(Refused) as caught:
            await dial(server.url, Identity("b", role="client"), {})
        assert caught.value.code == "full"
        first.close()
        await server.listener.close()

    go(main)


def test_slow_loris_handshake(go: Any) -> None:
    async def main() -> None:
        server = await serve(handshake_ms=150)
        hello = b"".join(encode(FrameType.HELLO, 0, encode_control(Hello(Identity("slow")))))
        silent, slow = RawPeer(server), RawPeer(server)
        for byte in hello[:-1]:
            try:
                await slow.send(bytes([byte]))
            except OSError:
                break
            await asyncio.sleep(0.005)
        assert await silent.ended() == []
        await slow.ended()
        await until(lambda: server.closes("handshake_timeout") == 2)
        await server.listener.close()

    go(main)


def test_a_large_hello_is_refused_before_it_is_read(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        peer = RawPeer(server)
        await peer.send(struct.pack("<IBBHII", 500_000, FrameType.HELLO, 0, 0, 500_000, 0))
        await peer.ended()
        await until(lambda: server.closes("over_limit") == 1)
        await server.listener.close()

    go(main)


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


def test_pause_takes_effect_before_the_next_frame(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        server.service.on_each = lambda connection, _frame: connection.pause_reading()
        peer = RawPeer(server)
        assert (await peer.hello()) is not None
        await peer.send(b"".join(b"".join(encode(50, CHANNEL, bytes([i]))) for i in range(5)))
        for i in range(1, 6):
            await until(lambda i=i: len(server.service.frames) >= i)  # type: ignore[misc]
            await asyncio.sleep(0.01)
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


@pytest.mark.parametrize(
    ("error", "code"), [(ValueError("bug"), "handler_error"), (Refused("x", "no"), "protocol")]
)
def test_a_failing_service_costs_that_connection_alone(
    go: Any, error: Exception, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = await serve()

        def fail(_connection: Connection, frame: Frame) -> None:
            if frame.control == b"bad":
                raise error

        server.service.on_each = fail
        good = await dial(server.url, Identity("good", role="client"), {CHANNEL: Recorder()})
        bad = await dial(server.url, Identity("bad", role="client"), {CHANNEL: Recorder()})
        bad.send(50, CHANNEL, b"bad")
        assert (await bad.wait_closed()).code == "goodbye"
        await until(lambda: server.closes(code) == 1)
        good.send(50, CHANNEL, b"good")
        await until(lambda: len(server.service.frames) == 2)
        good.close()
        await server.listener.close()

    go(main)


def test_reconnect_after_the_server_restarts(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        client = Recorder()
        dialer = Dialer(
            server.url,
            Identity("me", role="client"),
            {CHANNEL: client},
            settings=TransportSettings(backoff_ms=5, backoff_limit_ms=50),
            rng=random.Random(1),
        )
        dialer.start()
        await dialer.connected()
        port = server.listener.port
        await server.listener.close()
        await until(lambda: client.closed)
        assert client.closed[0].code == "shutdown"
        await until(lambda: dialer.last_error)
        again = await serve(port)
        connection = await dialer.connected()
        connection.send(50, CHANNEL, b"back")
        await until(lambda: again.service.frames)
        await dialer.stop()
        assert client.closed[-1].code == "shutdown"
        await again.listener.close()

    go(main)


def _same(sides: list[Any]) -> bool:
    """Whether what one side dialled is what the other one accepted."""
    at_a, at_b = sides[0][3].get("b"), sides[1][3].get("a")
    return at_a is not None and at_b is not None and at_a.dialled != at_b.dialled


def test_simultaneous_dial_keeps_one(go: Any) -> None:
    async def main() -> None:
        sides = []
        for name in ("a", "b"):
            identity, service, traffic = Identity(name, 1), Recorder(), Traffic(Metrics())
            peers = Peers(identity)
            listener = await listen(
                "127.0.0.1", 0, identity, {CHANNEL: service}, traffic=traffic, peers=peers
            )
            sides.append((identity, service, traffic, peers, listener))
        for _ in range(10):
            dialers = []
            for mine, other in (sides, sides[::-1]):
                identity, service, traffic, peers, _listener = mine
                dialers.append(
                    Dialer(
                        Url("127.0.0.1", other[4].port),
                        identity,
                        {CHANNEL: service},
                        traffic=traffic,
                        peers=peers,
                        peer_name=other[0].name,
                    )
                )
            for dialer in dialers:
                dialer.start()
            # For a moment each side may have one connection, and not the same: both are kept by neither.
            await until(lambda: all(len(side[2].live) == 1 for side in sides) and _same(sides))
            at_a, at_b = sides[0][3].get("b"), sides[1][3].get("a")
            assert at_a is not None
            assert at_b is not None
            before = len(sides[1][1].frames)
            at_a.send(50, CHANNEL, b"same connection")
            await until(lambda before=before: len(sides[1][1].frames) == before + 1)  # type: ignore[misc]
            assert at_a.dialled != at_b.dialled
            for dialer in dialers:
                await dialer.stop()
            await until(lambda: not any(side[2].live for side in sides))
        for side in sides:
            await side[4].close()

    go(main)


def test_a_restarted_node_displaces_its_former_self(go: Any) -> None:
    async def main() -> None:
        identity = Identity("server")
        service, peers = Recorder(), Peers(identity)
        listener = await listen("127.0.0.1", 0, identity, {CHANNEL: service}, peers=peers)
        url = Url("127.0.0.1", listener.port)
        old = await dial(url, Identity("node", 1), {CHANNEL: Recorder()})
        new = await dial(url, Identity("node", 2), {CHANNEL: Recorder()})
        assert (await old.wait_closed()).detail.startswith("duplicate")
        with pytest.raises(Refused, match="another connection"):
            await dial(url, Identity("node", 1), {})
        assert peers.get("node") is service.connections[1]
        assert not new.closing
        new.close()
        await listener.close()

    go(main)


def test_nobody_there(go: Any) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(CannotListen, match=str(port)):
                await listen("127.0.0.1", port, Identity("second"), {})
            with pytest.raises(CannotConnect, match=r"did not (answer|shake hands)") as caught:
                await dial(
                    Url("127.0.0.1", port), Identity("me"), {}, settings=TransportSettings(handshake_ms=100)
                )
            assert caught.value.code in ("timeout", "handshake_timeout")
        with pytest.raises(CannotConnect, match="is the server running"):
            await dial(Url("127.0.0.1", port), Identity("me"), {})

    go(main)


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


def test_a_welcome_of_another_version_is_refused_by_the_dialler(go: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as fake:
            fake.setblocking(False)
            port = fake.getsockname()[1]
            attempt = loop.create_task(dial(Url("127.0.0.1", port), Identity("me"), {}))
            peer, _ = await loop.sock_accept(fake)
            with peer:
                welcome = encode_control(Welcome(Identity("odd"), 99))
                await loop.sock_sendall(peer, b"".join(encode(FrameType.WELCOME, 0, welcome)))
                with pytest.raises(CannotConnect, match="version 99"):
                    await attempt

    go(main)


def test_ping_is_answered_and_garbled_control_is_not(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        peer = RawPeer(server)
        welcome = await peer.hello()
        assert welcome is not None
        answer = decode_control(welcome.type, welcome.control)
        assert isinstance(answer, Welcome)
        assert answer.identity.name == "server"
        await peer.send(b"".join(encode(FrameType.PING, 0, msgspec.msgpack.encode([77]))))
        pong = await peer.frame()
        assert pong is not None
        assert msgspec.msgpack.decode(pong.control) == [77]
        await peer.send(b"".join(encode(FrameType.PING, 0, b"\xc1")))
        (goodbye,) = await peer.ended()
        assert goodbye.type == FrameType.GOODBYE
        await until(lambda: server.closes("malformed") == 1)
        await server.listener.close()

    go(main)
