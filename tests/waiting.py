"""How tests wait: a condition is polled until it holds, or until a deadline ends the test with what there is
to say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from qanat.runtime.loop import run as run_loop

DEADLINE_S = 300.0
"""Far more than any condition takes on a busy machine."""

Say = Callable[[], object]


def too_long() -> object:
    return "waited too long"


async def until(
    condition: Callable[[], object],
    deadline_s: float = DEADLINE_S,
    *,
    every_s: float = 0.002,
    say: Say = too_long,
) -> None:
    """`say` gives the message of the failure; it is called only then. `condition` may raise to fail at
    once."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, say()
        await asyncio.sleep(every_s)


def wait_until(
    condition: Callable[[], object],
    deadline_s: float = DEADLINE_S,
    *,
    every_s: float = 0.01,
    say: Say = too_long,
) -> None:
    """The same without a loop."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, say()
        time.sleep(every_s)


def run(work: Coroutine[Any, Any, None], within_s: float = DEADLINE_S, *, uvloop: bool = True) -> None:
    """Runs a test's coroutine to its end, on the loop that the project uses if nothing else is said."""

    async def bounded() -> None:
        async with asyncio.timeout(within_s):
            await work

    run_loop(bounded, uvloop=uvloop)
