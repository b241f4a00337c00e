"""One connection between two nodes: dialled by both, lost and dialled again, or of a former life."""

import random
from typing import Any

import pytest
from tests.integration.dialing import Dialer
from tests.integration.listening import CHANNEL, Recorder, serve
from tests.waiting import until

from qanat.runtime.dialer import dial
from qanat.runtime.listener import listen
from qanat.runtime.metrics import Metrics
from qanat.runtime.peers import Peers
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url
from qanat.wire.control import Identity, Refused


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
