"""The progress of long work, on standard error, from its first second, so that nobody wonders whether it
hangs.

On a terminal one line changes in place. Elsewhere a line names each piece of work after half a second, again
after 5, 15 and 30 seconds, then every minute. Nothing goes to standard output, and so none into `--json`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from qanat.cli.interruption import for_the_main_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICK_S = 0.2
_FIRST_S = 0.5
_LATER_S = (5.0, 15.0, 30.0)
_EVERY_S = 60.0

Detail = Callable[[], str]


class UnderWay:
    """A context; `say` names the work that begins. Several threads may use it."""

    def __init__(
        self,
        words: TextIO | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        *,
        in_place: bool | None = None,
        every_s: float = 0.0,
    ) -> None:
        """`every_s`: the time between two lines where there is no terminal."""
        self._words = words or sys.stderr
        self._in_place = self._words.isatty() if in_place is None else in_place
        self._clock_s, self._every_s = clock_s, every_s
        self._lock = threading.RLock()
        self._what = ""
        self._detail: Detail = lambda: ""
        self._began_s = 0.0
        self._told = 0
        self._shown = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> UnderWay:
        self._thread = threading.Thread(target=self._tell_on, name="under-way", daemon=True)
        with for_the_main_thread():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done()
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def say(self, what: str, detail: Detail = lambda: "") -> None:
        """Names the current work; `detail` returns its progress."""
        with self._lock:
            self._clear()
            self._what, self._detail, self._told = what, detail, 0
            self._began_s = self._clock_s()

    def done(self) -> None:
        """Ends the current work."""
        self.say("")

    def print(self, line: str) -> None:
        """Prints a line of the work itself on standard output, apart from the progress."""
        with self._lock:
            self._clear()
            print(line, flush=True)

    # --- telling ------------------------------------------------------------------------------------

    def _tell_on(self) -> None:
        while not self._ended.wait(_TICK_S):
            self.tell()

    def tell(self) -> None:
        """Writes a line of progress, if it is due."""
        with self._lock:
            if not self._what:
                return
            passed_s = self._clock_s() - self._began_s
            if passed_s < (_FIRST_S if self._in_place else self._due_s()):
                return
            line = f"qanat: {self._what}{self._how_far()}{self._since(passed_s)}"
            if self._in_place:
                self._words.write(f"\r\x1b[K{line[:200]}")
                self._shown = True
            else:
                self._words.write(f"{line}\n")
                self._told += 1
            self._words.flush()

    def _due_s(self) -> float:
        if not self._told:
            return _FIRST_S
        if self._every_s:
            return self._told * self._every_s
        if self._told <= len(_LATER_S):
            return _LATER_S[self._told - 1]
        return _LATER_S[-1] + _EVERY_S * (self._told - len(_LATER_S))

    def _how_far(self) -> str:
        try:
            found = self._detail()
        except Exception:  # without a detail the line is still useful
            return ""
        return f": {found}" if found else ""

    def _since(self, passed_s: float) -> str:
        return f" ({passed_s:.0f} s)" if passed_s >= 1 else ""

    def _clear(self) -> None:
        if self._shown:
            self._words.write("\r\x1b[K")
            self._words.flush()
            self._shown = False


def tasks_of(spark: SparkSession) -> Detail:
    """The progress of Spark's jobs, as Spark reports it."""
    tracker = spark.sparkContext.statusTracker()

    def told() -> str:
        done = total = 0
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
        return f"{done} of {total} Spark tasks" if total else ""

    return told
