"""What an instance counts, at its /metrics: what it was handed, how long callbacks took, how late updates
were."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from qanat.protocols.publisher.messages import Loss, Notice, Token, Updates
from qanat.protocols.publisher.subscriber import Feed, Handed, Subscriber
from qanat.runtime.metrics import Metrics
from qanat.runtime.process_metrics import export_process

Numbers = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
_MOST = 100_000
"""Shards that are remembered by name, to be counted."""


class Counting:
    """`item` is used in the callbacks' thread, all else on the loop: each number is written in one place."""

    def __init__(self, metrics: Metrics, application: str, machine: Callable[[], Subscriber | None]) -> None:
        self._machine = machine
        self._counts: Counter[str] = Counter()
        self._shards: dict[str, tuple[int, dict[str, None]]] = {}
        """By publisher, the session and what came in it."""
        self.unacknowledged = 0
        self._last_us = 0
        self._busy_since = 0.0
        self._delay = metrics.histogram(
            "instance_delay_seconds",
            "From an update's commit until its callback returned; of the last of each delivery.",
        )
        self._took = metrics.histograms(
            "instance_callback_seconds", "How long callbacks took, by what they were given.", ("item",)
        )
        self._export(metrics, application)
        export_process(metrics)

    @contextmanager
    def item(self, handed: Handed) -> Iterator[None]:
        """Counts it when its callback returns."""
        item, began = handed.item, time.monotonic()
        self._busy_since = began
        try:
            yield
        except BaseException:
            self._counts["failures"] += 1
            raise
        finally:
            self._busy_since = 0.0
        self._took.labels(type(item).__name__.lower()).observe(time.monotonic() - began)
        self._counts[type(item).__name__] += 1
        match item:
            case Updates():
                self._counts["updates"] += sum(batch.count for batch in item.batches)
                self._counts["bytes"] += sum(batch.virtual_size for batch in item.batches)
                last = item.batches[-1]
                if last.count:
                    self._last_us = int(last.times()[-1])
                    self._delay.observe(max(0.0, time.time() - self._last_us / 1e6))
            case Notice():
                self._mine(handed).update(dict.fromkeys(item.shards[:_MOST]))
            case Token():
                self._counts["markers"] += sum(len(mark.shards) for mark in item.marks)
                if item.last:
                    mine = self._mine(handed)
                    for mark in item.marks:
                        for shard in mark.shards:
                            mine.pop(shard, None)
            case Loss():
                self._counts["lost_shards"] += len(item.shards)

    def _mine(self, handed: Handed) -> dict[str, None]:
        """Shards of this session; those of the one before are for others."""
        found = self._shards.get(handed.publisher)
        if found is None or found[0] != handed.session:
            found = self._shards[handed.publisher] = (handed.session, {})
        return found[1]

    def _shard_count(self) -> int:
        machine = self._machine()
        sessions = (
            {} if machine is None else {str(name): feed.session for name, feed in machine.feeds.items()}
        )
        return sum(
            len(shards)
            for name, (session, shards) in list(self._shards.items())
            if sessions.get(name) == session
        )

    def status(self) -> dict[str, Any]:
        machine, counts = self._machine(), self._counts
        return {
            "shards": self._shard_count(),
            "deliveries": counts["Updates"],
            "updates": counts["updates"],
            "bytes": counts["bytes"],
            "losses": counts["Loss"],
            "notices": counts["Notice"],
            "tokens": counts["Token"],
            "in_hand": 0 if machine is None else len(machine.in_hand),
            "queued": 0 if machine is None else sum(len(feed.queue) for feed in machine.feeds.values()),
        }

    def _export(self, metrics: Metrics, application: str) -> None:
        def count(name: str) -> Numbers:
            return lambda: [((), float(self._counts[name]))]

        def said(name: str) -> Numbers:
            return lambda: [((), 0.0 if (m := self._machine()) is None else float(m.counts[name]))]

        def feeds(read: Callable[[Feed], float]) -> Numbers:
            return lambda: (
                []
                if (m := self._machine()) is None
                else [((str(a),), float(read(f))) for a, f in m.feeds.items()]
            )

        counter, gauge = metrics.counter_of, metrics.gauge_of
        gauge(
            "instance_info",
            "1, with the application's name.",
            ("application",),
            lambda: [((application,), 1.0)],
        )
        counter("instance_deliveries", "Calls of on_updates.", (), count("Updates"))
        counter("instance_updates", "Updates that were handled.", (), count("updates"))
        counter("instance_bytes", "Bytes of them.", (), count("bytes"))
        counter("instance_notices", "Times that shards came here.", (), count("Notice"))
        counter("instance_tokens", "Calls of on_token.", (), count("Token"))
        counter("instance_markers", "Shards in them, together.", (), count("markers"))
        counter(
            "instance_tokens_unacknowledged",
            "Tokens for which the application did not stand.",
            (),
            lambda: [((), float(self.unacknowledged))],
        )
        counter("instance_losses", "Calls of on_data_loss.", (), count("Loss"))
        counter("instance_lost_shards", "Shards in them, together.", (), count("lost_shards"))
        counter("instance_failures", "Callbacks that raised.", (), count("failures"))
        gauge("instance_shards", "Shards that it has.", (), lambda: [((), float(self._shard_count()))])
        gauge(
            "instance_last_update_time",
            "When the update that was handled last was committed, in seconds since 1970.",
            (),
            lambda: [((), self._last_us / 1e6)],
        )
        gauge(
            "instance_busy_seconds",
            "For how long the callback has been running; 0 if none is.",
            (),
            lambda: [((), self._busy())],
        )
        gauge(
            "instance_in_hand",
            "Items that the application has.",
            (),
            lambda: [((), 0.0 if (m := self._machine()) is None else float(len(m.in_hand)))],
        )
        counter("instance_welcomes", "Sessions that publishers gave it.", (), said("Welcome"))
        counter("instance_refusals", "Times that a publisher refused it.", (), said("Refused"))
        counter("instance_leases_granted", "Leases that publishers renewed.", (), said("Granted"))
        counter("instance_sessions_gone", "Sessions that publishers ended.", (), said("Gone"))
        counter(
            "instance_items_received",
            "Deliveries that came, also those of sessions that ended.",
            (),
            said("Updates"),
        )
        counter(
            "instance_items_returned",
            "Items that were not begun, since their lease was over by then.",
            (),
            said("returned"),
        )
        of = ("publisher",)
        gauge("instance_session", "1 while there is a session.", of, feeds(lambda f: f.session != 0))
        gauge(
            "instance_queued_items", "Items that wait for the callbacks.", of, feeds(lambda f: len(f.queue))
        )
        gauge("instance_window_bytes", "What may be under way to it.", of, feeds(lambda f: f.window))
        gauge(
            "instance_lease_seconds",
            "For how long a lease is granted.",
            of,
            feeds(lambda f: f.lease_us / 1e6),
        )
        gauge(
            "instance_handled_item",
            "Number of the item that was handled last, in this session.",
            of,
            feeds(lambda f: f.handled),
        )

    def _busy(self) -> float:
        since = self._busy_since
        return time.monotonic() - since if since else 0.0
