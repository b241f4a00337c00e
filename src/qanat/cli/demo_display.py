"""The display of the demonstration: a table in place on a terminal, else a line a second; and its current
step, with a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from qanat.cli.interruption import for_the_main_thread
from qanat.cli.tables import table
from qanat.cli.under_way import UnderWay

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from qanat.demonstration.run import Progress

_STILL_S = 2.0
"""Time after which an unchanged number that should grow shows its age."""
_EVERY_S = 5.0


class Stage:
    """One row of the table: the events so far, and how many more could have come."""

    def __init__(self, name: str, count: int, behind: int = 0, late: str = "") -> None:
        self.name, self.count, self.behind, self.late = name, count, max(0, behind), late


def stages(progress: Progress) -> list[Stage]:
    """The stages of an event's way, in order."""
    told, each = progress.told, progress.subscribers
    found = [
        Stage("written to RocksDB", progress.written),
        Stage("captured by Spark", told.captured, progress.written - told.captured),
        Stage("published", told.published, progress.orders - told.published),
        Stage("archived", told.archived, told.published - told.archived),
        Stage("sold and published elsewhere", progress.sales),
    ]
    for i, region in enumerate(progress.regions):
        late = f"{progress.from_write_ms[i]:.0f} ms ({progress.from_publish_ms[i]:.0f} ms)"
        count = progress.delivered[i]
        found.append(
            Stage(f"delivered in {region}", count, (told.published + progress.sales) * each - count, late)
        )
    return found


_HEADS = ["events", "per s", "behind", "from write (from publish)"]


class Counting:
    """Rates of the last second, and the age of each number."""

    def __init__(self) -> None:
        self.since_s, self.counts = 0.0, list[int]()
        self._last: list[int] = []
        self._changed_s: list[float] = []

    def rates(self, progress: Progress, now: list[Stage]) -> list[int]:
        """Events per second since the last second began."""
        counts = self.counts or [0] * len(now)
        seconds = progress.seconds - self.since_s
        found = [int((s.count - c) / seconds) if seconds > 0 else 0 for s, c in zip(now, counts, strict=True)]
        if seconds >= 1:
            self.since_s, self.counts = progress.seconds, [stage.count for stage in now]
        return found

    def still(self, progress: Progress, now: list[Stage]) -> list[str]:
        """The age of each stage that is behind and has had no new events for a while; else empty."""
        counts = [stage.count for stage in now]
        if len(self._last) != len(counts):
            self._last, self._changed_s = counts, [progress.seconds] * len(counts)
        for i, count in enumerate(counts):
            if count != self._last[i] or not now[i].behind:
                self._changed_s[i] = progress.seconds
        self._last = counts
        ages = [progress.seconds - changed for changed in self._changed_s]
        return [f" (no news for {age:.0f} s)" if age >= _STILL_S else "" for age in ages]


class Display:
    """A context. `show` takes numbers, `say` news, and `doing` the current step (empty: none)."""

    def __init__(self, words: TextIO) -> None:
        self._words = words
        self._lines = not words.isatty()
        self._under = UnderWay(words, in_place=False, every_s=_EVERY_S)
        self._counting = Counting()
        self._picture = Picture()
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self._lines:
            self._under.__enter__()
        else:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(self._picture, console=Console(file=self._words), refresh_per_second=5)
            with for_the_main_thread():
                self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._picture.what = ""
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
        else:
            self._under.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        if self._live is None:
            print(text, file=self._words, flush=True)
            return
        from rich.text import Text

        self._live.console.print(Text(text))

    def doing(self, what: str) -> None:
        self._picture.begin(what)
        if self._live is None:
            self._under.say(what)

    def show(self, progress: Progress) -> None:
        now = stages(progress)
        still = self._counting.still(progress, now)
        if self._live is None:
            self._line(progress, now, still)
            return
        rates = self._counting.rates(progress, now)
        rows = [
            [stage.name, stage.count, rate, stage.behind, f"{stage.late}{age}"]
            for stage, rate, age in zip(now, rates, still, strict=True)
        ]
        self._picture.table = table([f"{progress.seconds:.1f} s", *_HEADS], rows)

    def _line(self, progress: Progress, now: list[Stage], still: list[str]) -> None:
        counting = self._counting
        if progress.seconds - counting.since_s < 1 or [stage.count for stage in now] == counting.counts:
            return
        per_s = counting.rates(progress, now)
        way = " → ".join(f"{now[i].name.split()[0]} {now[i].count:,}{still[i]}" for i in range(4))
        way += f", sold {now[4].count:,}"
        last = "  ".join(
            f"{region} {per_s[5 + i]:>6,}/s {progress.from_write_ms[i]:>5.0f} ms"
            for i, region in enumerate(progress.regions)
        )
        print(f"{progress.seconds:5.1f} s  {way};  {last}", file=self._words, flush=True)


class Picture:
    """The picture on a terminal: rendered several times a second, so that its clock runs."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.table = self.what = ""
        self._clock_s = clock_s
        self._began_s = 0.0

    def begin(self, what: str) -> None:
        self.what, self._began_s = what, self._clock_s()

    def text(self) -> str:
        waits = f"{self.what} ({self._clock_s() - self._began_s:.0f} s)" if self.what else ""
        return "\n".join(part for part in (self.table, waits) if part)

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(self.text())
