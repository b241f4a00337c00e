"""A refused dial is told apart from one that nobody answers: the first says that a process is gone."""

import socket
from typing import Any

from tests.integration.housing import House, Send
from tests.waiting import until

from qanat.runtime.url import Url


def test_a_machine_hears_that_nobody_listens_where_its_peer_did_and_dials_again_before_long(go: Any) -> None:
    async def main() -> None:
        hour_ms = 3_600_000
        house = House(backoff_ms=hour_ms, backoff_limit_ms=hour_ms, refused_limit_ms=20)
        a, b = await house.add("a"), await house.add("b")
        a.request(20, Send("b", "hello"))
        await until(lambda: ("a", "hello") in house.heard["b", 20])
        await b.stop()
        await until(lambda: ("down", "b") in house.heard["a", 20])
        assert ("refused", "b") not in house.heard["a", 20]
        for _ in range(3):
            house.heard["a", 20].clear()
            a.request(20, Send("b", "lost"))
            await until(lambda: ("down", "b") in house.heard["a", 20])
            assert house.heard["a", 20] == [("refused", "b"), ("down", "b")]
        await a.stop()

    go(main)


def test_a_peer_that_listens_and_stands_still_has_refused_nothing(go: Any) -> None:
    async def main() -> None:
        house = House(handshake_ms=50)
        a = await house.add("a")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            house.urls["b"] = Url("127.0.0.1", silent.getsockname()[1])
            a.request(20, Send("b", "lost"))
            await until(lambda: ("down", "b") in house.heard["a", 20])
        assert ("refused", "b") not in house.heard["a", 20]
        await a.stop()

    go(main)
