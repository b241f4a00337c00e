"""The wheel: what is in it, that it works where there is no checkout, and that plain PySpark finds it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.integration.installing import CHANGING, Environment, build
from tests.servers.stream_server import ServerProcess
from tests.spark.cluster import Cluster
from tests.spark.cluster import environment as spark_environment

from qanat import __version__
from qanat.client import Client

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import qanat, pyspark_qanat
names = [module.name for module in pkgutil.walk_packages(qanat.__path__, "qanat.")]
names = [name for name in names if not name.endswith("__main__")]
wrong = {}
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        wrong[name] = str(error)
print(json.dumps([len(names), wrong, qanat.__file__, sorted(m for m in sys.modules if "workshop" in m)]))
"""
EVENTS = 100


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Environment]:
    folder = Path(tempfile.mkdtemp(prefix="qanat-wheel-"))
    try:
        yield Environment(folder / "env", wheel)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(installed: Environment, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", (installed.qanat,))
    try:
        yield process.start()
    finally:
        process.end()


def test_it_holds_the_two_packages_and_nothing_of_the_workshop(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"qanat-{__version__}.dist-info/METADATA").decode()
        scripts = archive.read(f"qanat-{__version__}.dist-info/entry_points.txt").decode()
    assert {name.split("/")[0] for name in names} == {
        "qanat",
        "pyspark_qanat",
        f"qanat-{__version__}.dist-info",
    }
    for needed in ("qanat/py.typed", "qanat/capture/files/HdfsFiles.java", "pyspark_qanat/__init__.py"):
        assert needed in names
    words = ["fuzz", "sample", "mariadb_server", "postgres_server", "papers", "config_page", "metrics_page"]
    words += ["crash_disk", "sim/testing", "KafkaSides", "drill_clients", "cli/servers", ".pyc"]
    assert [name for name in names if any(word in name for word in words)] == []
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nProvides-Extra: spark\n" in metadata
    assert "\nProvides-Extra: web\n" not in metadata
    assert "qanat = qanat.cli.main:main" in scripts


def test_all_that_is_in_it_can_be_imported(installed: Environment) -> None:
    count, wrong, where, workshop = json.loads(installed.run(installed.python, "-c", IMPORT_ALL))
    assert wrong == {}
    assert count > 500
    assert Path(where).is_relative_to(installed.site)
    assert workshop == ["qanat.runtime.workshop"]


def test_the_command_works_outside_of_a_checkout(installed: Environment, server: ServerProcess) -> None:
    assert "commands:" in installed.run(installed.qanat, "--help")
    assert installed.run(installed.qanat, "--version") == f"qanat {__version__}\n"
    installed.run(installed.qanat, "pub", "weather", "--url", server.url, told="rain\nsnow\n")
    words = ["sub", "weather", "--url", server.url, "--from", "earliest", "--count", "2"]
    heard = installed.run(installed.qanat, *words)
    assert ("rain" in heard, "snow" in heard) == (True, True)
    assert server.health() == "ok"


@pytest.mark.parametrize(
    "words", [("test",), ("test", "--fast"), ("bench", "broadcast", "--beside", "redis"), ("study", "W15")]
)
def test_what_only_a_checkout_has_is_said_in_a_sentence(
    installed: Environment, words: tuple[str, ...]
) -> None:
    said = installed.run(installed.qanat, *words, code=3).splitlines()[-1]
    assert said.startswith("qanat: ")
    assert said.endswith("only in a checkout of the repository; run ./qanat there")


def test_its_benchmarks_leave_out_what_is_not_there(installed: Environment) -> None:
    listed = json.loads(installed.run(installed.qanat, "bench", "--json"))["benches"]
    assert {"broadcast", "readers", "readers_rocksdb"} <= set(listed)
    assert "readers_mariadb" not in listed


@pytest.mark.slow
def test_plain_pyspark_on_a_cluster_reads_and_writes_streams(
    installed: Environment, server: ServerProcess, tmp_path: Path
) -> None:
    with Client(server.url) as client:
        for n in range(EVENTS):
            client.publish("numbers", b"%d" % n, attributes={"n": n})
    spark = {name: value for name, value in spark_environment().items() if not name.startswith(CHANGING)}
    spark |= {"PYSPARK_PYTHON": installed.python, "PYSPARK_DRIVER_PYTHON": installed.python}
    cluster = Cluster(tmp_path, workers=1)
    try:
        job = Path(__file__).with_name("wheel_job.py")
        words = [installed.python, str(job), cluster.url, server.url, "numbers", "even"]
        count, where = installed.run(*words, added=spark).split()
    finally:
        cluster.end()
    assert int(count) == EVENTS // 2
    assert Path(where).is_relative_to(installed.site)
    with Client(server.url) as client, client.subscribe("even", start="earliest") as events:
        got = [next(events).payload for _ in range(EVENTS // 2)]
    assert sorted(map(int, map(bytes, got))) == list(range(0, EVENTS, 2))
