"""One peer's frames, however many came together, do not keep the loop from the others."""

from itertools import count
from time import perf_counter
from typing import Any

import pytest
from tests.integration.listening import CHANNEL, RawPeer, serve
from tests.waiting import until

import qanat.runtime.connection
from qanat.runtime.connection import Connection
from qanat.wire.frame import Frame, encode

COUNT = 2_000
"""Of two milliseconds each: four seconds, if nobody else had a turn."""


def busy(_connection: Connection, frame: Frame) -> None:
    until_s = perf_counter() + 0.002
    while frame.control == b"costly" and perf_counter() < until_s:
        pass


def test_others_have_their_turn_between_the_frames_of_one_chunk(go: Any) -> None:
    async def main() -> None:
        server = await serve()
        server.service.on_each = busy
        greedy, modest = RawPeer(server), RawPeer(server)
        for peer in (greedy, modest):
            assert await peer.hello() is not None
        await greedy.send(b"".join(encode(33, CHANNEL, b"costly")) * COUNT)
        await until(lambda: server.service.frames)
        await modest.send(b"".join(encode(40, CHANNEL, b"mine")))
        answer = await modest.frame()
        assert answer is not None and answer.control == b"mine"
        assert sum(control == b"costly" for _, control, _ in server.service.frames) < 200
        for peer in (greedy, modest):
            peer.socket.close()
        await server.listener.close()

    go(main)


def test_one_frame_alone_waits_for_nobody_however_long_it_took(
    go: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that lost its core in the middle of one used to stop and start its reading, which is two
    system calls for nothing."""
    paused: list[Connection] = []
    wait = Connection._wait_a_turn

    def waits(connection: Connection) -> None:
        paused.append(connection)
        wait(connection)

    monkeypatch.setattr(Connection, "_wait_a_turn", waits)

    async def main() -> None:
        server = await serve()
        clock = count()
        peer = RawPeer(server)
        assert await peer.hello() is not None
        monkeypatch.setattr(qanat.runtime.connection, "perf_counter", lambda: float(next(clock)))
        for control in (b"one", b"two"):
            await peer.send(b"".join(encode(40, CHANNEL, control)))
            answer = await peer.frame()
            assert answer is not None and answer.control == control
        assert not paused
        await peer.send(b"".join(encode(40, CHANNEL, b"together")) * 3)
        await until(lambda: len(server.service.frames) == 5)
        assert paused, "of three the last waits"
        peer.socket.close()
        await server.listener.close()

    go(main)


def test_all_frames_of_a_chunk_come_in_order_and_once_and_pauses_hold(go: Any) -> None:
    async def main() -> None:
        server = await serve()

        def costly(connection: Connection, frame: Frame) -> None:
            busy(connection, Frame(33, CHANNEL, b"costly", frame.attachment))
            if frame.control == b"30":
                connection.pause_reading()

        server.service.on_each = costly
        peer = RawPeer(server)
        assert await peer.hello() is not None
        frames = [b"".join(encode(33, CHANNEL, b"%d" % i)) for i in range(100)]
        await peer.send(b"".join(frames))
        await until(lambda: len(server.service.frames) == 31)
        (connection,) = server.service.connections
        for _ in range(20):
            await until(lambda: True)
        assert len(server.service.frames) == 31 and not connection.reading
        connection.resume_reading()
        await until(lambda: len(server.service.frames) == 100)
        assert [control for _, control, _ in server.service.frames] == [b"%d" % i for i in range(100)]
        peer.socket.close()
        await until(lambda: server.service.closed)
        await server.listener.close()

    go(main)
