"""What tasks report, added up; and errors on their way through Spark."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.capture.errors import LogUnreachable, OtherLog
from qanat.client import NoStream, Unavailable
from qanat.events.errors import InvariantError, QanatError
from qanat.events.position import Position
from qanat.pipeline.ingest.failures import Disagreement, Outage, SparkFailed, Told, as_ours, heard
from qanat.pipeline.ingest.live import Live
from qanat.pipeline.progress import SourceProgress
from qanat.pipeline.telling import metrics_of, trouble_in


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def report(worker: str, read: int, upto: int, newest: int, **more: Any) -> dict[str, Any]:
    return {
        "worker": worker,
        "upto": f"{upto}:0",
        "newest": f"{newest}:0",
        "seen_us": 0,
        "read": read,
        "chosen": read,
        "dead": 0,
        "lost": 0,
        "busy_s": read / 1000,
        "time_us": 0,
        "events": {"orders-0": read},
        "positions": {"orders-0": f"{upto}:0"},
        **more,
    }


def test_sums_go_on_over_the_processes_that_tasks_run_in() -> None:
    clock = Clock()
    progress = SourceProgress(clock)
    assert progress.take(report("a", 100, 100, 500))
    assert not progress.take(report("a", 100, 100, 500))
    clock.now += 5
    progress.take(report("a", 300, 300, 500))
    progress.take(
        report("b", 200, 500, 500, dead=2, events={"orders-1": 200}, positions={"orders-1": "500:0"})
    )
    status = progress.status()
    assert (status["read"], status["published"], status["dead_letters"]) == (500, 500, 2)
    assert status["shards"]["orders-0"] == {"events": 300, "position": "300:0", "lag_s": 0.0}
    assert status["shards"]["orders-1"]["events"] == 200
    assert status["processed_per_s"] == 1000
    assert status["input_per_s"] == 80
    assert str(progress.upto) == "500:0"


def test_processes_between_which_tasks_go_to_and_fro_are_counted_once() -> None:
    """As on a cluster: each says what it has done since it began, and where streams were when it worked
    last."""
    progress = SourceProgress(Clock())
    progress.take(report("a", 200, 200, 900))
    progress.take(report("b", 100, 300, 900))
    progress.take(report("a", 500, 600, 900))
    progress.take(report("b", 400, 900, 900, positions={"orders-1": "900:0", "orders-0": "300:0"}))
    status = progress.status()
    assert (status["read"], status["published"], status["processed_per_s"]) == (900, 900, 1000)
    assert status["shards"]["orders-0"]["position"] == "600:0"
    for number in range(100):  # each an attempt of its own, while a server is away
        progress.take(report(f"c{number}", 10, 900, 900, positions={}))
    assert progress.status()["read"] == progress.status()["published"] == 1900


def test_lag_grows_while_something_waits() -> None:
    clock = Clock()
    progress = SourceProgress(clock)
    progress.take(report("a", 10, 10, 10))
    clock.now += 7
    assert progress.status()["lag_s"] == 0
    assert progress.status(waiting=True)["lag_s"] == 7
    progress.take(report("a", 11, 11, 20))
    assert progress.status()["lag_s"] == 7
    progress.take(report("a", 20, 20, 20))
    assert progress.status()["lag_s"] == 0


def test_a_stream_that_lags_is_told_from_those_that_do_not() -> None:
    clock = Clock()
    progress = SourceProgress(clock)
    shards = {"orders-0": "10:0", "orders-1": "9:0"}
    progress.take(report("a", 10, 10, 10, events=dict.fromkeys(shards, 5), positions=shards))

    def lags(waiting: bool = False, live: Live | None = None) -> list[float]:
        status = progress.status(waiting, live)
        found = [shard["lag_s"] for _, shard in sorted(status["shards"].items())]
        assert status["lag_s"] == max(found)
        return found

    # All of the next range is read; what it has for one stream is stored, what it has for the other waits for
    # 20 s.
    clock.now += 100
    stuck = Live(
        clock.now, Position(20), Position(20), {"orders-0": Position(20)}, {"orders-1": clock.now - 20}
    )
    assert lags(live=stuck) == [0, 20]
    assert progress.status(live=stuck)["shards"]["orders-0"]["position"] == "20:0"
    # The log goes on, and nobody reads it: either stream may have something there, since when each had
    # everything.
    clock.now += 3
    behind = stuck._replace(told=clock.now, newest=Position(25))
    assert lags(live=behind) == [3, 103]
    assert progress.status(live=behind)["newest"] == "25:0"
    # A task that tells nothing any more says nothing of now; trouble does.
    clock.now += 7
    assert lags(live=behind) == [0, 0]
    assert lags(waiting=True, live=behind) == [10, 110]
    progress.take(report("a", 25, 25, 25, positions={"orders-0": "20:0", "orders-1": "25:0"}))
    assert lags() == [0, 0]


def test_a_status_as_metrics() -> None:
    progress = SourceProgress(Clock())
    progress.take(report("a", 10, 10, 10))
    status = {
        "sources": {"shop": progress.status() | {"trouble": "the database is away"}},
        "archive": {"orders-0": {"rows": 9}},
    }
    text = metrics_of(lambda: status).render().decode()
    assert 'qanat_pipeline_read_total{source="shop"} 10.0' in text
    assert 'qanat_pipeline_published_total{source="shop",stream="orders-0"} 10.0' in text
    assert 'qanat_pipeline_shard_lag_seconds{source="shop",stream="orders-0"} 0.0' in text
    assert 'qanat_pipeline_trouble{source="shop"} 1.0' in text
    assert 'qanat_pipeline_archived_total{stream="orders-0"} 9.0' in text
    assert trouble_in(status) == "shop: the database is away"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OtherLog('it has "other" updates\nand more'), Disagreement),
        (NoStream("no_stream", "there is no stream 'a'", "a"), Disagreement),
        (LogUnreachable("the database is away"), Outage),
        (Unavailable("no server"), Outage),
        (InvariantError("cannot be"), InvariantError),
    ],
)
def test_an_error_comes_through_spark_as_what_it_means(error: QanatError, kind: type[QanatError]) -> None:
    text = (
        f"Job aborted\nTraceback:\n  File x\nqanat.pipeline.ingest.failures.Told: {Told(error)}\n\tat"
        " org.apache.spark"
    )
    told = heard(text)
    assert (type(told), str(told)) == (kind, str(error))
    assert type(as_ours(error)) is kind


def test_what_spark_says_of_itself_is_one_line() -> None:
    text = (
        "Job aborted due to stage failure\norg.apache.spark.SparkException: Python worker exited unexpectedly"
        " (crashed)\n at x"
    )
    told = heard(text)
    assert isinstance(told, SparkFailed)
    assert "Python worker exited unexpectedly" in str(told)
    assert "\n" not in str(told)
