"""The first words on a connection: who is taken, who is refused, and who never says them."""

import asyncio
import socket
import struct
from typing import Any

import pytest
from tests.integration.listening import RawPeer, serve
from tests.waiting import until

from qanat.runtime.dialer import CannotConnect, dial
from qanat.runtime.listener import CannotListen, listen
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import Url
from qanat.wire.control import Hello, Identity, Refused, Welcome, encode_control
from qanat.wire.frame import FrameType, encode


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


def test_who_cannot_be_let_in_hears_why(go: Any) -> None:
    """The listening end may say farewell instead of answering."""

    async def main() -> None:
        server = await serve()
        with pytest.raises(CannotConnect, match=r"would not shake hands \(malformed: .*name") as caught:
            await dial(server.url, Identity("a\x1b", role="client"), {})
        assert caught.value.code == "malformed"
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
            await asyncio.sleep(0.005)  # its slowness
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
