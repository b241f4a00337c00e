"""What is away is waited for once: by whoever needs it, and not by the next one all over again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from qanat.events.errors import RemoteError
from qanat.events.position import Position
from qanat.pipeline.ingest import job as jobs
from qanat.pipeline.ingest.agreement import Agreed, Asked
from qanat.pipeline.ingest.failures import GivenUp, Outage, SparkFailed, Told, heard
from qanat.pipeline.ingest.job import SourceJob
from qanat.pipeline.ingest.routes import Routes, Way
from qanat.pipeline.ingest.state import Remembered, State
from qanat.pipeline.ingest.trouble import Trouble, troubles
from qanat.pipeline.pipeline_file import IngestSettings

AWAY = Outage("there is no server")


def test_patience_goes_on_in_the_process_that_takes_over(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    Trouble(file, 1000.0).wait(AWAY)
    began = troubles(tmp_path)["since"]
    Trouble(file, 1000.0).wait(Outage("there is still no server"))
    told = troubles(tmp_path)
    assert (told["trouble"], round(told["since"], 1)) == ("there is still no server", round(began, 1))

    file.write_text(json.dumps({"trouble": "there is no server", "since": time.time() - 2000}))
    with pytest.raises(GivenUp, match=r"no server \(waited for it for 2000 s\)"):
        Trouble(file, 1000.0).wait(AWAY)

    # When it is over, it is over for whoever comes next.
    Trouble(file, 1000.0).over()
    assert not troubles(tmp_path)
    Trouble(file, 1000.0).wait(AWAY)


def test_that_somebody_gave_up_comes_through_spark() -> None:
    text = f"Traceback …\nqanat.Told: {Told(GivenUp('gone (waited for it for 3 s)'))}\n at org.apache.spark"
    assert isinstance(heard(text), GivenUp)


class Query:
    """As Spark's, as far as a job looks at it."""

    def __init__(self) -> None:
        self.failed = ""

    def exception(self) -> Exception:
        return RuntimeError(self.failed)

    def stop(self) -> None:
        pass


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[Query]:
    """Those that were started."""
    started: list[Query] = []

    def start(*_: Any, **__: Any) -> Query:
        started.append(Query())
        return started[-1]

    agreed = Agreed(Remembered("log", "0:0", "mark"), Position(0, 0), Position(9, 0), {})
    monkeypatch.setattr(jobs, "look", lambda *_, **__: agreed)
    monkeypatch.setattr(jobs, "start_query", start)
    monkeypatch.setattr(jobs, "runs", lambda query: not query.failed)
    monkeypatch.setattr(jobs, "report_of", lambda _: "")
    monkeypatch.setattr(jobs, "let_go", lambda *_: None)
    monkeypatch.setattr(jobs, "_WELL_S", -1.0)
    return started


@pytest.fixture
def job(tmp_path: Path) -> SourceJob:
    asked = Asked("log", "rocksdb:///db", "qanat://127.0.0.1:1", Routes((Way("all"),)))
    settings = IngestSettings(patience_s=1000.0)
    return SourceJob(None, asked, State(tmp_path), settings, publish_losses=False, once=False)  # type: ignore[arg-type]


def test_a_task_that_gave_up_ends_the_pipeline_at_once(job: SourceJob, queries: list[Query]) -> None:
    job.step()
    queries[0].failed = str(Told(GivenUp("there is no server (waited for it for 1000 s)")))
    with pytest.raises(GivenUp, match="waited for it") as raised:
        job.step()
    assert isinstance(raised.value, RemoteError)  # exit code 3
    assert len(queries) == 1


def test_a_query_that_only_waits_is_not_well(job: SourceJob, queries: list[Query], tmp_path: Path) -> None:
    job.step()
    queries[0].failed = "a worker ended"
    job.step()
    assert isinstance(job.trouble, SparkFailed)
    file = State(tmp_path).troubles("log") / "task.json"
    Trouble(file, 1000.0).wait(AWAY)
    job._next_try = 0.0
    job.step()
    assert len(queries) == 2 and troubles(file.parent)  # it is not forgotten since when
    job.step()
    assert job.trouble is not None
    Trouble(file, 1000.0).over()
    job.step()
    assert job.trouble is None
