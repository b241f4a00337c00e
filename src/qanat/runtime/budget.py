"""One budget of memory for the whole process: who holds how much, and in which order something is given up
when it runs short.

What is measured is what the process really has, so nothing escapes it; what the holders say tells who gives
up. Each holder bounds itself as well: the budget is for the sum, which no bound of one connection, stream or
session can know.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from qanat.events.errors import LocalError
from qanat.runtime.memory import code_bytes, give_back, machine_bytes, own_bytes
from qanat.runtime.metrics import Metrics

log = logging.getLogger("qanat.memory")

_MIB = 1 << 20
_SELDOM_S, _OFTEN_S = 0.25, 0.05
"""Between two looks, below and above half of the budget. Large receivers are also looked at as they grow."""
_GROWTH = 64
"""A look for each such part of the budget that was taken in between."""
_BACK_S = 0.5
"""Between two times that freed memory is given back to the system: it takes the allocator tens of
milliseconds."""
_HYSTERESIS = 0.97
"""A level is over when so much of its bound is left: what was given up must not come at once again."""


def default_bytes(there: int) -> int:
    """Half of what there is; up to 512 MiB three quarters, since the process needs some 100 MiB for
    itself."""
    return max(there // 2, min(there * 3 // 4, 512 * _MIB))


class OutOfMemory(LocalError):
    """The process has nearly all the memory that it may have."""


class Level(IntEnum):
    """How short memory is; each has all that those before it have."""

    EASY = 0
    TIGHT = 1
    """What is remembered only to be faster is forgotten."""
    SHORT = 2
    """Nothing more is read from the connections that hold more than their share; if it lasts, those that hold
    most are cut off."""
    CLOSED = 3
    """New connections, subscriptions, streams and sources are refused."""
    FULL = 4
    """Publishes are refused; the connections that hold most are cut off at once."""


_FROM = {Level.TIGHT: 0.7, Level.SHORT: 0.8, Level.CLOSED: 0.875, Level.FULL: 0.95}
"""Shares of the budget."""
_WANTED = 0.75
"""The share down to which is given up: below SHORT, so that this is over."""


class Shed(NamedTuple):
    """What a holder is told when memory is short."""

    level: Level
    over: int
    """Bytes to be given up; none below the level SHORT."""
    budget: int


class Holder(NamedTuple):
    """Somebody who holds memory: how many bytes, as near as is known at little cost; and what gives some
    up."""

    held: Callable[[], int]
    shed: Callable[[Shed], int] | None
    """Returns about how many bytes it gave up, or will have soon."""


class MemoryBudget:
    """Of one process. `add` a holder; `look` is called by the clock once it was started, and by who `grew`.

    `refuse_new` and `refuse_more` raise `OutOfMemory` where something new, or more of anything, would be
    taken.
    """

    def __init__(
        self,
        budget_bytes: int = 0,
        metrics: Metrics | None = None,
        *,
        measure: Callable[[], int] = own_bytes,
        code: Callable[[], int] = code_bytes,
    ) -> None:
        self.budget_bytes = 0
        self.used_bytes = 0
        self.level = Level.EASY
        self.holders: dict[str, Holder] = {}
        self._measure, self._code = measure, code
        self._grown = self._code_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._given_back_s = 0.0
        self._giving_back: asyncio.Future[None] | None = None
        self._soon = self._relieved = False
        self.reload(budget_bytes)
        metrics = metrics or Metrics()
        self._given_up = metrics.counters(
            "memory_given_up_bytes", "Bytes released because memory was short, by holder.", ("holder",)
        )
        self._refused = metrics.counters(
            "memory_refused", "Requests refused because memory was short, by kind.", ("what",)
        )
        metrics.gauge_of(
            "memory_budget_bytes",
            "Memory budget of the process.",
            (),
            lambda: [((), float(self.budget_bytes))],
        )
        metrics.gauge_of(
            "memory_used_bytes",
            "Memory in use, without mapped pages of logs.",
            (),
            lambda: [((), float(self.measured()))],
        )
        metrics.gauge_of(
            "memory_level",
            "Pressure on the budget: from 0, easy, to 4, used up.",
            (),
            lambda: [((), float(self.level))],
        )
        metrics.gauge_of(
            "memory_held_bytes",
            "Memory held, by kind of holder.",
            ("holder",),
            lambda: [((name,), float(holder.held())) for name, holder in self.holders.items()],
        )

    # --- for holders --------------------------------------------------------------------------------

    def add(self, name: str, held: Callable[[], int], shed: Callable[[Shed], int] | None = None) -> None:
        """Those who come first are asked first."""
        self.holders[name] = Holder(held, shed)

    def grew(self, size: int) -> None:
        """So much was taken; a look follows soon if it is a share of the budget that counts."""
        self._grown += size
        if self._grown * _GROWTH > self.budget_bytes and not self._soon and self._timer is not None:
            self._soon = True
            asyncio.get_running_loop().call_soon(self.look)

    def refuse_new(self, what: str) -> None:
        if self.level >= Level.CLOSED:
            self._refuse(what)

    def refuse_more(self, what: str) -> None:
        if self.level >= Level.FULL:
            self._refuse(what)

    def _refuse(self, what: str) -> None:
        self._refused.labels(what).value += 1
        raise OutOfMemory(
            f"this server is short of memory ({self._numbers()}), so no {what} is taken; try again later, or"
            " raise memory.budget_bytes"
        )

    # --- for the node ---------------------------------------------------------------------------------

    def reload(self, budget_bytes: int) -> None:
        """0: as much as `default_bytes` says."""
        self.budget_bytes = budget_bytes or default_bytes(machine_bytes())

    def start(self) -> None:
        """Looks by the clock from now on, on the running loop. What is mapped now are programs, which count
        as well; later it is logs."""
        if self._timer is None:
            self._code_bytes = self._code()
            self._measured(self.measured())
            self._look_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def measured(self) -> int:
        """What the process has; where the system does not say, what the holders know of."""
        own = self._measure()
        return own + self._code_bytes if own else sum(holder.held() for holder in self.holders.values())

    def trouble(self) -> str | None:
        """What to tell people while something is refused."""
        if self.level < Level.CLOSED:
            return None
        return (
            f"memory is short ({self._numbers()}): new connections and subscriptions are refused;"
            f" {self._largest()}"
        )

    def status(self) -> dict[str, object]:
        return {
            "budget_bytes": self.budget_bytes,
            "used_bytes": self.measured(),
            "level": self.level.name.lower(),
            "held_bytes": {name: holder.held() for name, holder in self.holders.items()},
            "given_up_bytes": {name[0]: counter.value for name, counter in self._given_up.children.items()},
            "refused": {what[0]: counter.value for what, counter in self._refused.children.items()},
        }

    def look(self) -> Level:
        """Measures, and has the holders give up what the level asks for."""
        self._soon = False
        self._grown = 0
        self._measured(self.measured())
        if self.level:
            over = int(self.used_bytes - _WANTED * self.budget_bytes) if self.level >= Level.SHORT else 0
            for name, holder in self.holders.items():
                if holder.shed is not None:
                    given = holder.shed(Shed(self.level, over, self.budget_bytes))
                    over = max(0, over - given)
                    self._given_up.labels(name).value += given
            self._give_back()
        elif self._relieved:
            for holder in self.holders.values():
                if holder.shed is not None:
                    holder.shed(Shed(Level.EASY, 0, self.budget_bytes))
        return self.level

    # --- inside -----------------------------------------------------------------------------------------

    def _measured(self, used: int) -> None:
        self.used_bytes = used
        before, self.level = self.level, self._level_of(used)
        self._relieved = before > self.level == Level.EASY
        if before < Level.CLOSED <= self.level:
            log.error("memory is short, new connections are refused", extra={"reason": self._numbers()})
        elif self.level < Level.CLOSED <= before:
            log.info("there is memory again", extra={"reason": self._numbers()})

    def _level_of(self, used: int) -> Level:
        for level in sorted(_FROM, reverse=True):
            bound = _FROM[level] * self.budget_bytes
            if used >= (bound if level > self.level else bound * _HYSTERESIS):
                return level
        return Level.EASY

    def _look_later(self) -> None:
        often = 2 * self.used_bytes > self.budget_bytes
        self._timer = asyncio.get_running_loop().call_later(_OFTEN_S if often else _SELDOM_S, self._tick)

    def _tick(self) -> None:
        try:
            self.look()
        except Exception:  # the next look comes all the same
            log.exception("a holder of memory failed")
        self._look_later()

    def _give_back(self) -> None:
        busy = self._giving_back is not None and not self._giving_back.done()
        if busy or self._timer is None or time.monotonic() - self._given_back_s < _BACK_S:
            return
        self._given_back_s = time.monotonic()
        self._giving_back = asyncio.get_running_loop().run_in_executor(None, give_back)

    def _numbers(self) -> str:
        return f"{self.used_bytes // _MIB} of {self.budget_bytes // _MIB} MiB are in use"

    def _largest(self) -> str:
        held, name = max(
            ((holder.held(), name) for name, holder in self.holders.items()), default=(0, "nobody")
        )
        return f"most is held by {name} ({held // _MIB} MiB)"
