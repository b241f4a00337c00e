"""How a pipeline is doing, in numbers: what tasks report, added up over the processes that they ran in."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from qanat.events.position import Position
from qanat.pipeline.ingest.live import Live

_WINDOW_S = 10.0
"""Rates are of the last seconds."""
_WORKERS = 64
"""So many processes are told apart; one that was not heard of for longer is not heard of again."""
_SUMS = ("read", "chosen", "dead", "lost")


class SourceProgress:
    """Of one source since the pipeline was started."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._began = now()
        self._workers: dict[str, dict[str, Any]] = {}
        """The last report of each process, the latest one last: on a cluster tasks go from one to another and
        back."""
        self._before: dict[str, float] = dict.fromkeys((*_SUMS, "busy_s"), 0)
        """What processes had done that are forgotten."""
        self._events_before: dict[str, int] = {}
        self._report: dict[str, Any] = {}
        self._samples: deque[tuple[float, float, float]] = deque()
        self.streams: dict[str, str] = {}
        """Position of the last event in each stream."""
        self._caught_up = now()
        """When all was published that the log had."""
        self._complete: dict[str, float] = {}
        """When a stream had all that the log had for it, where that was later."""

    def take(self, report: dict[str, Any]) -> bool:
        """Whether it says something new."""
        if report == self._report:
            return False
        self._report = report
        self._workers.pop(report["worker"], None)
        self._workers[report["worker"]] = report
        if len(self._workers) > _WORKERS:
            self._forget(self._workers.pop(next(iter(self._workers))))
        for stream, position in report["positions"].items():
            # Of one who comes back they may be old.
            if Position.parse(position) > Position.parse(self.streams.get(stream, "0:0")):
                self.streams[stream] = position
        now = self._now()
        self._samples.append((now, self._sum("read"), self._sum("busy_s")))
        while len(self._samples) > 2 and self._samples[0][0] < now - _WINDOW_S:
            self._samples.popleft()
        if report["upto"] == report["newest"]:
            self._caught_up = now
        return True

    def _forget(self, report: dict[str, Any]) -> None:
        for name in self._before:
            self._before[name] += report[name]
        for stream, count in report["events"].items():
            self._events_before[stream] = self._events_before.get(stream, 0) + count

    @property
    def upto(self) -> Position | None:
        """Everything up to here is published."""
        return Position.parse(self._report["upto"]) if self._report else None

    def _sum(self, name: str) -> float:
        return self._before[name] + sum(float(report[name]) for report in self._workers.values())

    def events(self) -> dict[str, int]:
        """Published, by stream."""
        found = dict(self._events_before)
        for report in self._workers.values():
            for stream, count in report["events"].items():
                found[stream] = found.get(stream, 0) + count
        return found

    def lag_s(self, waiting: bool, live: Live | None = None) -> float:
        """For how long something may have been waiting to be published; `waiting` if the source is known to
        be in trouble."""
        lags = (
            self._lag_s(stream, waiting, live) for stream in {*self.streams, *(live.waiting if live else ())}
        )
        return max(
            lags, default=max(0.0, self._now() - self._caught_up) if waiting or self._behind(live) else 0.0
        )

    def _behind(self, live: Live | None) -> bool:
        """Whether the log has something that nobody has read."""
        if live is not None:
            return live.read < live.newest
        return bool(self._report) and self._report["upto"] != self._report["newest"]

    def _lag_s(self, stream: str, waiting: bool, live: Live | None) -> float:
        """Of one stream: since when something waits for it that was read, or may wait for it among what was
        not read yet."""
        now = self._now()
        own = now - live.waiting[stream] if live is not None and stream in live.waiting else 0.0
        if waiting or self._behind(live):
            own = max(own, now - max(self._caught_up, self._complete.get(stream, 0.0)))
        return max(own, 0.0)

    def _hear(self, live: Live | None) -> Live | None:
        """What a task tells while it works, if it still does."""
        if live is None:
            return None
        self.streams |= {stream: str(position) for stream, position in live.positions.items()}
        if not self._behind(live):
            self._complete |= dict.fromkeys(self.streams.keys() - live.waiting.keys(), live.told)
        return live if live.is_fresh(self._now()) else None

    def status(self, waiting: bool = False, live: Live | None = None) -> dict[str, Any]:
        """`live`: what a task says of the range that it works on."""
        live = self._hear(live)
        report, now = self._report, self._now()
        first = self._samples[0] if self._samples else (now, 0.0, 0.0)
        last = self._samples[-1] if self._samples else first
        fresh = now - last[0] < _WINDOW_S
        read, busy_s = last[1] - first[1], last[2] - first[2]
        if len(self._samples) == 1:
            first, read, busy_s = (self._began, 0.0, 0.0), last[1], last[2]
        lag_s = round(self.lag_s(waiting, live), 3)
        newest = report.get("newest", "") if live is None else str(live.newest)
        events = self.events()
        return {
            "position": report.get("upto", ""),
            "newest": newest,
            "read": int(self._sum("read")),
            "published": sum(events.values()),
            "filtered": int(self._sum("read") - self._sum("chosen")),
            "dead_letters": int(self._sum("dead")),
            "losses": int(self._sum("lost")),
            "input_per_s": round(read / max(now - first[0], 0.001)) if fresh else 0,
            "processed_per_s": round(read / busy_s) if busy_s > 0 else 0,
            "lag_s": lag_s,
            "shards": {
                stream: {
                    "events": events.get(stream, 0),
                    "position": position,
                    "lag_s": round(self._lag_s(stream, waiting, live), 3),
                }
                for stream, position in sorted(self.streams.items())
            },
        }
