"""A running pipeline over HTTP: `/metrics`, `/status`, `/healthz`, on a loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

from qanat.runtime.admin import Admin
from qanat.runtime.loop import new_loop
from qanat.runtime.metrics import Metrics
from qanat.runtime.node_settings import AdminSettings

Status = Callable[[], dict[str, Any]]
Sample = tuple[tuple[str, ...], float]

_OF_SOURCE = {
    "pipeline_read_total": ("read", "Updates read from the log since the pipeline started."),
    "pipeline_filtered_total": ("filtered", "Updates that the source's tables and filter left out."),
    "pipeline_dead_letters_total": ("dead_letters", "Updates that became dead letters."),
    "pipeline_losses_total": ("losses", "Times that the log no longer had updates."),
}
_GAUGES = {
    "pipeline_input_per_s": ("input_per_s", "Updates read per second, over 10 s."),
    "pipeline_processed_per_s": ("processed_per_s", "Updates processed per second of work."),
    "pipeline_lag_seconds": ("lag_s", "Seconds that updates have waited to be published."),
}
_OF_SHARD = {
    "pipeline_published_total": (
        "events",
        "Events published into a stream since the pipeline started.",
        True,
    ),
    "pipeline_shard_lag_seconds": (
        "lag_s",
        "Seconds that updates for a stream have waited, unread updates included.",
        False,
    ),
}


def metrics_of(status: Status) -> Metrics:
    """What a status says, as metrics; made when somebody reads them."""
    metrics = Metrics()

    def of_source(key: str) -> Callable[[], Iterator[Sample]]:
        return lambda: (((name,), float(one[key])) for name, one in status()["sources"].items())

    def of_shard(key: str) -> Callable[[], Iterator[Sample]]:
        return lambda: (
            ((name, stream), float(shard[key]))
            for name, one in status()["sources"].items()
            for stream, shard in one["shards"].items()
        )

    for name, (key, what) in _OF_SOURCE.items():
        metrics.counter_of(name, what, ("source",), of_source(key))
    for name, (key, what) in _GAUGES.items():
        metrics.gauge_of(name, what, ("source",), of_source(key))
    for name, (key, what, counts) in _OF_SHARD.items():
        add = metrics.counter_of if counts else metrics.gauge_of
        add(name, what, ("source", "stream"), of_shard(key))
    metrics.gauge_of(
        "pipeline_trouble",
        "1 while a server that the source needs is unavailable.",
        ("source",),
        lambda: (((name,), float("trouble" in one)) for name, one in status()["sources"].items()),
    )
    metrics.counter_of(
        "pipeline_archived_total",
        "Events archived since the pipeline started.",
        ("stream",),
        lambda: (((name,), float(one["rows"])) for name, one in status().get("archive", {}).items()),
    )
    return metrics


def trouble_in(status: dict[str, Any]) -> str | None:
    """Why the pipeline is not well, if it is not."""
    for name, one in status["sources"].items():
        if "trouble" in one:
            return f"{name}: {one['trouble']}"
    return None


class Telling:
    """Serves while it is entered; `port` is 0 if the settings say not to."""

    def __init__(self, settings: AdminSettings, status: Status) -> None:
        self.port = 0
        self._settings = settings
        self._admin = Admin(metrics_of(status), status, lambda: trouble_in(status()))
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qanat-admin", daemon=True)

    def __enter__(self) -> "Telling":
        self._thread.start()
        if self._settings.enabled:
            try:
                asyncio.run_coroutine_threadsafe(self._admin.start(self._settings), self._loop).result()
            except BaseException:
                self._end()
                raise
            self.port = self._admin.port
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._admin.close(), self._loop).result()
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
