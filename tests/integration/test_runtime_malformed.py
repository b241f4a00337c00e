"""What is wrong on a connection ends that connection, says why, and harms no other."""

import logging
from typing import Any

import msgspec
import pytest
from tests.integration.listening import CHANNEL, RawPeer, Recorder, serve
from tests.waiting import until

from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.wire.control import Identity, Refused, Welcome, decode_control
from qanat.wire.frame import Frame, FrameType, encode


def closed(caplog: pytest.LogCaptureFixture, peer: str) -> list[logging.LogRecord]:
    """The lines of the log that say that a connection with this peer ended."""
    return [
        record
        for record in caplog.records
        if record.getMessage() == "connection closed" and vars(record)["peer"].startswith(f"{peer}@")
    ]


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n" + bytes(64), bytes(64), b"\xff" * 64])
def test_malformed_bytes_cost_that_connection_alone(
    go: Any, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
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
        (line,) = closed(caplog, "raw")
        assert line.levelname == "WARNING" and vars(line)["reason"] in ("malformed", "over_limit")
        assert vars(line)["detail"]
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
        (line,) = closed(caplog, "bad")
        assert (line.levelname, vars(line)["reason"]) == ("WARNING", code)
        assert (
            str(error) in vars(line)["detail"] or "bug" in caplog.text
        )  # a bug's own words are in its traceback
        good.send(50, CHANNEL, b"good")
        await until(lambda: len(server.service.frames) == 2)
        good.close()
        await server.listener.close()

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
