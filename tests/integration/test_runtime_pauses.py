"""When the driver dials again at once, and when after a pause."""

from typing import Any

from tests.integration.housing import House, Send
from tests.waiting import until


def test_a_node_of_another_kind_is_not_dialled_without_a_pause(go: Any) -> None:
    """It shakes hands, and closes the connection for what is said on it."""

    async def main() -> None:
        house = House()
        a = await house.add("a", 20)
        await house.add("b", 21)
        for _ in range(3):
            a.request(20, Send("b", "hello"))
            await until(lambda: ("down", "b") in house.heard["a", 20])
            house.heard["a", 20].clear()
        assert a.links._links["b"].backoff.failures >= 2
        await house.close()

    go(main)


def test_a_connection_that_was_good_begins_anew(go: Any) -> None:
    async def main() -> None:
        house = House()
        a = await house.add("a")
        a.request(20, Send("b", "nobody"))
        await until(lambda: ("down", "b") in house.heard["a", 20])
        house.heard["a", 20].clear()
        b = await house.add("b")
        a.request(20, Send("b", "hello"))
        await until(lambda: ("a", "hello") in house.heard["b", 20])
        await b.stop()
        await until(lambda: ("down", "b") in house.heard["a", 20])
        house.heard["a", 20].clear()
        a.request(20, Send("b", "nobody"))
        await until(lambda: ("down", "b") in house.heard["a", 20])
        assert a.links._links["b"].backoff.failures == 1
        await a.stop()

    go(main)
