"""Work beside the loop: everybody in turn, and what fails is told."""

import asyncio
import threading

import pytest

from qanat.serving.side_thread import Aside


def test_who_asked_for_much_does_not_hold_up_who_asked_for_little() -> None:
    async def main() -> None:
        aside, begin, order = Aside("test"), threading.Event(), list[str]()
        all_done = asyncio.Event()

        def done(name: str) -> None:
            order.append(name)
            if len(order) == 7:
                all_done.set()

        aside.submit("first", lambda: "first" if begin.wait(60) else "", lambda name: done(str(name)))
        for number in range(4):
            aside.submit("greedy", lambda number=number: f"greedy {number}", lambda name: done(str(name)))  # type: ignore[misc]
        for name in ("one", "other"):
            aside.submit(name, lambda name=name: name, lambda name: done(str(name)))  # type: ignore[misc]
        begin.set()
        await all_done.wait()
        assert order == ["first", "greedy 0", "one", "other", "greedy 1", "greedy 2", "greedy 3"]
        assert not len(aside)

    asyncio.run(main())


def test_what_fails_is_told_and_the_next_is_done() -> None:
    async def main() -> None:
        aside = Aside("test")
        found: asyncio.Queue[object] = asyncio.Queue()
        aside.submit("a", lambda: 1 // 0, found.put_nowait)
        aside.submit("a", lambda: 7, found.put_nowait)
        assert isinstance(await found.get(), ZeroDivisionError)
        assert await found.get() == 7

    asyncio.run(main())


def test_who_is_gone_when_it_is_done_is_told_nothing() -> None:
    aside, begin = Aside("test"), threading.Event()

    async def leave() -> None:
        aside.submit("a", lambda: begin.wait(60), lambda _: pytest.fail("nobody is there"))

    async def come() -> int | Exception:
        begin.set()
        done: asyncio.Future[int | Exception] = asyncio.get_running_loop().create_future()
        aside.submit("b", lambda: 7, done.set_result)
        return await done

    asyncio.run(leave())
    assert asyncio.run(come()) == 7
