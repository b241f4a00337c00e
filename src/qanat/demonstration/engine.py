"""The demonstration's Spark: one process that runs the pipeline, archives beside it, and audits at the
end."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qanat.events.errors import QanatError
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.archiving import Archiving
from qanat.pipeline.audit.job import audit
from qanat.pipeline.pipeline_file import PipelineFile, read
from qanat.pipeline.running import Run
from qanat.pipeline.session import SparkSettings, open_session
from qanat.runtime import logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = ("orders-0", "orders-1")
STORE, ARCHIVE, RECORDS, FILE = "store", "archive", "deliveries", "demo.toml"
"""In the demonstration's folder."""
MASTER = "local[4]"
"""More tasks than cores: publishing does not wait for what is archived meanwhile."""
_REPORT_S = 0.2
_REPORTED_S = 30.0
_PIPELINE = """\
url = "{url}"

[sources.shop]
log = "rocksdb://{store}?dataset=shop"
filters = ["orders-only"]
shards = "hash:{shards}"

[filters]
orders-only = "key ~ '^order/'"

[[routes]]
stream = "orders-{{shard}}"

[archive]
path = "archive"
batch_ms = 1000

[admin]
enabled = false
"""


class Told(NamedTuple):
    """How far the pipeline is, with the orders."""

    captured: int
    """Updates read from the datastore's log."""
    published: int
    archived: int


class Audited(NamedTuple):
    """The end."""

    told: Told
    archived: int
    """Of all streams."""
    audit: str
    """`pass`, `fail` or `not proven`."""
    sentences: list[str]
    """What is wrong, or could not be decided."""
    latency_ms: dict[str, dict[str, float]]


class Failed(NamedTuple):
    """What ended it, as a sentence."""

    sentence: str
    exit_code: int


def engine(pipe: Pipe, folder: str, master: str = MASTER) -> None:
    """Says `ready`; is told where the region of the streams is, and which streams of others are to be
    archived in the end; says how far it is, until it is told how many writes there were."""
    logs.set_up("error")
    asked_to_leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_leave.set())  # a Java that starts is waited for
    try:
        settings = settings_of(Path(folder), master)
        spark = open_session(settings, "qanat demo")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        if not asked_to_leave.is_set():
            _work(pipe, Path(folder), spark, settings)
    except QanatError as error:
        pipe.send(Failed(str(error), getattr(error, "exit_code", 1)))
    finally:
        _end_java()


def settings_of(folder: Path, master: str) -> SparkSettings:
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    return SparkSettings(
        master=master,
        memory="768m",
        java_options=f"{quick} -Djava.io.tmpdir={folder}",
        folder=str(folder / "spark"),
        settings={"spark.sql.warehouse.dir": str(folder / "warehouse")},
    )


def _work(pipe: Pipe, folder: Path, spark: "SparkSession", settings: SparkSettings) -> None:
    pipe.send("ready")
    url, tills = pipe.recv()
    text = _PIPELINE.format(url=url, store=folder / STORE, shards=len(STREAMS))
    (folder / FILE).write_text(text, encoding="utf-8")
    file = read(folder / FILE)
    stopping = threading.Event()
    run = Run(file, settings, stopping=stopping)
    failed: list[BaseException] = []

    def running() -> None:
        try:
            run.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=running, name="pipeline", daemon=True)
    thread.start()
    written: int | None = None
    deadline = float("inf")
    while True:
        if failed:
            raise failed[0]
        told = _told(run, file)
        pipe.send(told)
        # Subscribers may have an event before Spark has reported it.
        if (written is not None and told.captured >= written) or time.monotonic() > deadline:
            break
        if pipe.poll(_REPORT_S) and written is None:
            written, deadline = pipe.recv(), time.monotonic() + _REPORTED_S
    stopping.set()
    thread.join()
    if failed:
        raise failed[0]
    archiving = Archiving(spark, url, file.archive, file.pipeline.archive)
    archiving.finish({*STREAMS, *tills})
    pipe.send(_told(run, file))
    report = audit(spark, str(folder / RECORDS), file.archive, whole=True)
    wrong = [violation.sentence() for violation in report.violations[:10]]
    pipe.send(
        Audited(
            _told(run, file),
            _archived(file, (*STREAMS, *tills)),
            str(report.as_json()["audit"]),
            [*wrong, *report.not_proven],
            report.latency_ms,
        )
    )


def _told(run: Run, file: PipelineFile) -> Told:
    source = run.status()["sources"].get("shop", {})
    return Told(source.get("read", 0), source.get("published", 0), _archived(file, STREAMS))


def _archived(file: PipelineFile, streams: tuple[str, ...]) -> int:
    storage = LocalStorage(file.archive)
    return sum(History(storage, stream).newest().rows for stream in streams)


def _end_java() -> None:
    """At once, and without leaving anything: all that it wrote is in the demonstration's folder."""
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # threads of PySpark that listen to Java would complain
        with suppress(OSError):
            java.kill()
        java.wait()
