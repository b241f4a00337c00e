"""The same jobs on a real standalone cluster, of which a worker is killed in the middle of each: nothing is
lost or doubled.

It is one test, since a cluster and a driver there cost more than what they do; its parts are functions, in
their order.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.rotation import turn, whole
from tests.servers.rocksdb import rocks_process
from tests.servers.stream_server import ServerProcess
from tests.spark.archives import fill, history_of, in_stream
from tests.spark.cluster import DEADLINE_S, Cluster, Driver, submit
from tests.spark.compacting import in_archive
from tests.spark.delivering import AUDIT, proven, recorded
from tests.spark.ingesting import in_log
from tests.spark.ingesting import in_stream as updates_in
from tests.spark.submit_lines import CHECKOUT, lines
from tests.waiting import wait_until

from qanat.client import Client
from qanat.client.errors import NoStream

LOSSY = "scenarios/push_sum_lossy.toml"
EVENTS = 4_000
UPDATES = 8_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="qanat-cluster-"))
    try:
        started = Cluster(folder)
        try:
            yield started
        finally:
            started.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[Driver]:
    started = Driver(cluster)
    try:
        yield started
    finally:
        started.end()


JOBS = ("sweep", "archive", "ingest")
"""Besides the one that copies, which comes first; most runs take one of them."""


@pytest.mark.rotating
@pytest.mark.paper("D1", "D2", "D4", "D5", "D7", "D8", "D9")
@pytest.mark.slow
def test_jobs_on_a_cluster_whose_workers_die(
    cluster: Cluster, driver: Driver, shared_server: ServerProcess, tmp_path: Path
) -> None:
    jobs = JOBS if whole() else (JOBS[turn() % len(JOBS)],)
    url, records = shared_server.url, tmp_path / "records"
    written = {"copied": EVENTS} | ({"ingested": UPDATES} if "ingest" in jobs else {})
    with Client(url) as client, ExitStack() as listening:
        fill(client, "clustered", EVENTS)
        ends = {stream: listening.enter_context(recorded(url, stream, records)) for stream in written}
        copy_is_the_stream(cluster, driver, client, url, tmp_path / "checkpoint")
        if "sweep" in jobs:
            sweep_runs_every_seed_once(cluster, driver)
        if "archive" in jobs:
            archive_is_the_stream(cluster, driver, client, url, tmp_path / "archive")
            deliveries_are_proven(cluster, driver, url, tmp_path)
            compaction_leaves_what_the_log_would(cluster, driver, tmp_path / "archive")
        if "ingest" in jobs:
            ingest_is_the_log(cluster, driver, client, url, tmp_path)
        for stream, count in written.items():
            ends[stream].append(count + 1)
    all_that_jobs_published_was_delivered_once(
        cluster, driver, url, records, tmp_path / "in-the-end", written
    )
    if "sweep" in jobs:
        submitted_job_has_the_package_that_it_brings(cluster, tmp_path)


def sweep_runs_every_seed_once(cluster: Cluster, driver: Driver) -> None:
    words = ["simulate", LOSSY, "--seeds", "0..79", "--spark", "--master", cluster.url, "--json"]
    fate, sweep = cluster.fate(), driver.start(*words)
    fate.strike(sweep)
    assert sweep.code() == 0, sweep.words()
    assert json.loads(sweep.out.read_text()) == {"seeds": [0, 79], "runs": 80, "failures": []}
    cluster.mend()


def archive_is_the_stream(cluster: Cluster, driver: Driver, client: Client, url: str, archive: Path) -> None:
    words = [
        "archive",
        "run",
        str(archive),
        "clustered",
        "--url",
        url,
        "--until-end",
        "--master",
        cluster.url,
    ]
    words += [
        "--set",
        "archive.batch_ms=0",
        "--set",
        "archive.batch_rows=500",
        "--set",
        "archive.range_rows=100",
    ]
    fate, run = cluster.fate(), driver.start(*words)
    fate.strike(run)
    assert run.code() == 0, run.words()
    cluster.mend()
    history = history_of(archive, "clustered")
    assert history.newest().complete() == ((1, EVENTS),)
    expected = in_stream(client, "clustered", 1, EVENTS)
    assert [(row["seq"], row["payload"]) for row in in_archive(history)] == [
        (row["seq"], bytes(row["payload"])) for row in expected
    ]
    assert driver.run("archive", "check", str(archive)).endswith("files are intact\n")


def deliveries_are_proven(cluster: Cluster, driver: Driver, url: str, folder: Path) -> None:
    for name, first, count in (("till-1", "earliest", EVENTS), ("till-2", "2001", EVENTS - 2_000)):
        words = ["--from", first, "--count", str(count), "--name", name]
        driver.run("sub", "clustered", "--url", url, "--record", str(folder / "deliveries"), *words)
    words = [
        "audit",
        str(folder / "deliveries"),
        "--archive",
        str(folder / "archive"),
        "--complete",
        "--json",
    ]
    fate, proving = cluster.fate(tasks=1), driver.start(*words, "--master", cluster.url)
    fate.strike(proving)
    assert proving.code() == 0, proving.words()
    cluster.mend()
    found = json.loads(proving.out.read_text())
    assert (found["audit"], found["delivered"]) == ("pass", 2 * EVENTS - 2_000)


def all_that_jobs_published_was_delivered_once(
    cluster: Cluster, driver: Driver, url: str, records: Path, archive: Path, written: Mapping[str, int]
) -> None:
    """Of the streams that jobs on the cluster wrote while its workers died, to one who listened all the
    time."""
    words = ["archive", "run", str(archive), *written, "--url", url, "--until-end"]
    driver.run(*words, "--master", cluster.url, "--set", "archive.batch_ms=0")
    report = driver.run("audit", str(records), "--archive", str(archive), *AUDIT, "--master", cluster.url)
    assert proven(json.loads(report)) == {stream: (1, count) for stream, count in written.items()}


def compaction_leaves_what_the_log_would(cluster: Cluster, driver: Driver, archive: Path) -> None:
    history = history_of(archive, "clustered")
    last = {row["key"]: row for row in in_archive(history)}
    words = ["compact", str(archive), "clustered", "--policy", "same key", "--master", cluster.url]
    fate, compacting = cluster.fate(tasks=1), driver.start(*words)
    fate.strike(compacting)
    assert compacting.code() == 0, compacting.words()
    cluster.mend()
    assert history.newest().complete() == ((1, EVENTS),)
    left = [row for row in in_archive(history) if row["kind"] == "data"]
    assert [(row["seq"], row["payload"]) for row in left] == sorted(
        (row["seq"], row["payload"]) for row in last.values()
    )
    assert driver.run("archive", "check", str(archive)).endswith("files are intact\n")


def ingest_is_the_log(cluster: Cluster, driver: Driver, client: Client, url: str, folder: Path) -> None:
    with rocks_process(folder / "db", wal_ttl_seconds=3600) as database:
        database.do("write", [[("put", "default", b"%d" % (at % 300), b"v%d" % at)] for at in range(UPDATES)])
        file = folder / "pipeline.toml"
        file.write_text(f"""
            url = "{url}"
            [sources.log]
            log = "{database.url}"
            [[routes]]
            stream = "ingested"
            [ingest]
            read_updates = 20
            """)
        words = ["pipeline", "run", str(file), "--once", "--json", "--master", cluster.url]
        fate, ingest = cluster.fate(tasks=1), driver.start(*words)
        fate.strike(ingest, lambda: published(client, "ingested"))
        assert ingest.code() == 0, ingest.words()
        cluster.mend()
        assert json.loads(ingest.out.read_text())["sources"]["log"]["dead_letters"] == 0
        assert updates_in(url, "ingested") == in_log(database.url)


def published(client: Client, stream: str) -> int:
    """How many events the stream has, if it is there."""
    try:
        return client.look(stream).readable
    except NoStream:
        return 0


def copy_is_the_stream(cluster: Cluster, driver: Driver, client: Client, url: str, checkpoint: Path) -> None:
    """It comes first: once a worker has died both executors are on the other one, and no task runs twice on
    one machine."""
    fate = cluster.fate(tasks=6)
    twice = checkpoint.with_name("twice")
    copying = driver.start("copy", cluster.url, url, "clustered", "copied", str(checkpoint), str(twice))
    wait_until(
        twice.exists, DEADLINE_S, say=copying.words
    )  # Spark ran a task a second time, beside the first
    fate.strike(copying)
    assert copying.code() == 0, copying.words()
    cluster.mend()
    copied, original = in_stream(client, "copied", 1, EVENTS), in_stream(client, "clustered", 1, EVENTS)
    assert [row["payload"] for row in copied] == [row["payload"] for row in original]
    assert [row["attributes"] for row in copied] == [row["attributes"] for row in original]
    assert client.look("copied").readable == EVENTS


def submitted_job_has_the_package_that_it_brings(cluster: Cluster, folder: Path) -> None:
    """The line of the page. What is in the zip file has a bug that this checkout has not, and it shows."""
    zipped = folder / "qanat.zip"
    sound, planted = "self.portion -= record.value\n", "self.portion -= record.value + 1\n"
    with ZipFile(zipped, "w") as archive:
        for package in ("qanat", "pyspark_qanat"):
            for path in sorted((CHECKOUT / "src" / package).rglob("*.py")):
                text = path.read_text()
                if path.name == "push_sum.py" and path.parent.name == "protocols":
                    assert text.count(sound) == 1
                    text = text.replace(sound, planted)
                archive.writestr(str(path.relative_to(CHECKOUT / "src")), text)
    here = {"spark://spark.example:7077": cluster.url, "qanat.zip": str(zipped), "1..100000": "0..3"}
    line = lines()["spark"]
    assert set(here) < set(line)
    done = submit(cluster, *(here.get(word, word) for word in line), "--json")
    assert done.returncode == 1, done.stderr
    failures = json.loads(done.stdout.splitlines()[-1])["failures"]
    assert [failure["seed"] for failure in failures] == [0, 1, 2, 3]
    assert failures[0]["replay"] == f"./qanat simulate {LOSSY} --seed 0"
