"""The event loop of a process: uvloop where it is installed, else asyncio's own."""

import asyncio
import warnings
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
    runner = asyncio.Runner(loop_factory=new_loop if uvloop else None)
    try:
        return runner.run(main())
    finally:
        with warnings.catch_warnings():
            # uvloop warns of sockets left open before it closes them; where warnings are errors it never
            # gets to the closing, and waits for ever.
            warnings.simplefilter("ignore", ResourceWarning)
            runner.close()
