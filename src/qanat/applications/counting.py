"""The metrics of an instance at its /metrics: items received, times of callbacks, delays of updates."""

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
"""Most shards remembered by name, in order to count them."""


class Counting:
    """`item` is used in the callbacks' thread, all else on the loop: each number is written in one place."""

    def __init__(self, metrics: Metrics, application: str, machine: Callable[[], Subscriber | None]) -> None:
        self._machine = machine
        self._counts: Counter[str] = Counter()
        self._shards: dict[str, tuple[int, dict[str, None]]] = {}
        """By publisher: the session and the shards received in it."""
        self.unacknowledged = 0
        self._last_us = 0
        self._busy_since = 0.0
        self._delay = metrics.histogram(
            "instance_delay_seconds",
            "From the commit of the last update of each delivery until its callback returned.",
        )
        self._took = metrics.histograms(
            "instance_callback_seconds", "Time that callbacks took, by kind of item.", ("item",)
        )
        self._export(metrics, application)
        export_process(metrics)

    @contextmanager
    def item(self, handed: Handed) -> Iterator[None]:
        """Counts the item when its callback returns."""
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
        counter("instance_updates", "Updates handled.", (), count("updates"))
        counter("instance_bytes", "Bytes of updates handled.", (), count("bytes"))
        counter("instance_notices", "Notices of shards assigned to this instance.", (), count("Notice"))
        counter("instance_tokens", "Calls of on_token.", (), count("Token"))
        counter("instance_markers", "Shards in the tokens.", (), count("markers"))
        counter(
            "instance_tokens_unacknowledged",
            "Tokens that the application did not acknowledge.",
            (),
            lambda: [((), float(self.unacknowledged))],
        )
        counter("instance_losses", "Calls of on_data_loss.", (), count("Loss"))
        counter("instance_lost_shards", "Shards in the losses.", (), count("lost_shards"))
        counter("instance_failures", "Callbacks that raised.", (), count("failures"))
        gauge("instance_shards", "Shards of this instance.", (), lambda: [((), float(self._shard_count()))])
        gauge(
            "instance_last_update_time",
            "Commit time of the last update handled, in seconds since 1970.",
            (),
            lambda: [((), self._last_us / 1e6)],
        )
        gauge(
            "instance_busy_seconds",
            "Seconds that the current callback has run; 0 if none runs.",
            (),
            lambda: [((), self._busy())],
        )
        gauge(
            "instance_in_hand",
            "Items handed to the application and not yet returned.",
            (),
            lambda: [((), 0.0 if (m := self._machine()) is None else float(len(m.in_hand)))],
        )
        counter("instance_welcomes", "Sessions granted by publishers.", (), said("Welcome"))
        counter("instance_refusals", "Refusals by publishers.", (), said("Refused"))
        counter("instance_leases_granted", "Leases renewed by publishers.", (), said("Granted"))
        counter("instance_sessions_gone", "Sessions ended by publishers.", (), said("Gone"))
        counter(
            "instance_items_received",
            "Deliveries received, those of ended sessions included.",
            (),
            said("Updates"),
        )
        counter(
            "instance_items_returned",
            "Items skipped because their lease had run out.",
            (),
            said("returned"),
        )
        of = ("publisher",)
        gauge(
            "instance_session",
            "1 while the instance has a session with the publisher.",
            of,
            feeds(lambda f: f.session != 0),
        )
        gauge("instance_queued_items", "Items that wait for a callback.", of, feeds(lambda f: len(f.queue)))
        gauge("instance_window_bytes", "Size of the instance's window.", of, feeds(lambda f: f.window))
        gauge(
            "instance_lease_seconds",
            "Length of a lease.",
            of,
            feeds(lambda f: f.lease_us / 1e6),
        )
        gauge(
            "instance_handled_item",
            "Number of the last item handled in this session.",
            of,
            feeds(lambda f: f.handled),
        )

    def _busy(self) -> float:
        since = self._busy_since
        return time.monotonic() - since if since else 0.0
