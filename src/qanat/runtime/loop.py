"""The event loop of a process: uvloop where it is installed, else asyncio's own."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Callable[[], Coroutine[Any, Any, _T]], *, uvloop: bool = True) -> _T:
    """Runs `main()` to its end on a new loop and gives its result; Ctrl-C cancels it."""
    with asyncio.Runner(loop_factory=new_loop if uvloop else None) as runner:
        return runner.run(main())
