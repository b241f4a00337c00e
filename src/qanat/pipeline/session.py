"""Spark sessions: one place that knows how Spark is started quietly, with the right Java and the right
Python.

PySpark is imported when a session is opened, not before: the command line must start fast.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import msgspec

from qanat.events.errors import LocalError
from qanat.pipeline.spark_versions import refuse_old
from qanat.runtime.java import find_java
from qanat.runtime.settings import setting

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


class NoSpark(LocalError):
    """Spark is not installed, or does not start."""

    exit_code = 3


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spark's master and resources for a job."""

    master: Annotated[
        str,
        setting(
            "Spark's master: `local[*]`, `local[2]`, `spark://host:7077`, `yarn`, `k8s://…`.",
            why="a single machine needs no cluster",
        ),
    ] = "local[*]"
    cores: Annotated[
        int,
        setting(
            "Cores to use: threads of a `local` master without a number, else `spark.cores.max`. 0: all.",
            unit="cores",
            why="a job alone on its machine may use all cores",
            ge=0,
        ),
    ] = 0
    memory: Annotated[
        str,
        setting(
            "Heap of the driver's Java, and of each executor.",
            unit="Spark's: 512m, 2g",
            why="batches take some MiB; sorting and grouping use the rest, and spill beyond it",
            pattern=r"^\d+[kmgt]?$",
        ),
    ] = "2g"
    java_options: Annotated[
        str,
        setting(
            "Options of the Java virtual machines, as `-XX:+UseSerialGC`.",
            why="none are needed",
        ),
    ] = ""
    shuffle_partitions: Annotated[
        int,
        setting(
            "Partitions of a shuffle; 0: one per core.",
            why="each partition of a micro-batch costs a task of some ms, even without rows",
            ge=0,
        ),
    ] = 0
    folder: Annotated[
        str,
        setting(
            "Folder into which Spark spills; empty: the system's folder for temporary files.",
            why="systems keep room for such files there",
        ),
    ] = ""
    settings: Annotated[
        dict[str, str],
        setting(
            "Any of Spark's own settings by name; these override the ones above.", why="Spark has hundreds"
        ),
    ] = {}


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every Spark job."""

    spark: SparkSettings = SparkSettings()


def open_session(settings: SparkSettings | None = None, name: str = "qanat") -> "SparkSession":
    """A session with the format `qanat`; the one that runs in this process already, if there is one.

    Spark and Java print nothing of their own: what goes wrong comes back as an exception.
    """
    settings = settings or SparkSettings()
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NoSpark(f"PySpark cannot be imported ({error}): `pip install 'qanat[spark]'`.") from None
    refuse_old(pyspark.__version__)
    running = SparkSession.getActiveSession()
    if running is not None:
        register(running)
        return running
    silence_py4j()
    told = told_by_submit()
    if told:
        settings = under_submit(settings, told)
    else:
        prepare_environment(local=is_local(settings.master))
    from pyspark import SparkConf

    pairs = {
        **options_of(settings),
        **told,
        "spark.app.name": name,
        "spark.master": master_of(settings),
    }
    _launch(SparkConf(loadDefaults=False).setAll(list(pairs.items())), settings.master)
    builder = SparkSession.builder
    for key, value in pairs.items():
        builder = builder.config(key, value)
    try:
        with keeping_interrupts():
            session = builder.getOrCreate()
    except Exception as error:
        raise NoSpark(
            f"Spark does not start with master {settings.master!r}: {_first_line(error)}"
        ) from error
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Spark takes Ctrl-C for itself, and raises KeyboardInterrupt; a command that has its own way to stop
    keeps it."""
    kept = signal.getsignal(signal.SIGINT)
    yield
    if callable(kept) and kept is not signal.default_int_handler:
        with suppress(ValueError):  # not in the main thread, where Spark takes nothing either
            signal.signal(signal.SIGINT, kept)


@contextmanager
def putting_off_interrupts() -> Iterator[list[int]]:
    """Java that is left alone while it starts finds nobody to tell where it listens, and stays for ever.
    Ctrl-C meanwhile is told in the list."""
    came: list[int] = []
    kept = signal.getsignal(signal.SIGINT)
    if kept is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield came
        return

    def note(number: int, frame: FrameType | None) -> None:
        if came:  # somebody does not want to wait
            raise KeyboardInterrupt
        came.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, kept)


def silence_py4j() -> None:
    """py4j, which carries calls to Java, logs those that an interruption cuts off, with their stack and in
    part as the root logger; who called gets an exception anyway."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger().addFilter(_not_of_py4j)  # it stays one, however often it is added


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


def told_by_submit() -> dict[str, str]:
    """Spark's settings as `spark-submit` has them, if it started this process; Java runs then already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def under_submit(settings: SparkSettings, told: Mapping[str, str]) -> SparkSettings:
    """What `spark-submit` says of the master holds, unless another than the default was asked for."""
    if settings.master != SparkSettings().master:
        return settings
    return msgspec.structs.replace(settings, master=told.get("spark.master", settings.master))


def master_of(settings: SparkSettings) -> str:
    """`local` and `local[*]` with the number of cores, if one is set."""
    if settings.cores and settings.master in ("local", "local[*]"):
        return f"local[{settings.cores}]"
    return settings.master


def is_local(master: str) -> bool:
    """Whether everything runs in this machine's one Java."""
    return master == "local" or master.startswith("local[")


def options_of(settings: SparkSettings) -> dict[str, str]:
    """Spark's own settings; also what a line for `spark-submit` needs."""
    master = master_of(settings)
    shuffles = settings.shuffle_partitions or settings.cores or os.cpu_count() or 1
    options = {
        "spark.driver.memory": settings.memory,
        "spark.executor.memory": settings.memory,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Batches of a data source are as large as it makes them; this is for rows that go to Python.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.shuffle.partitions": str(shuffles),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        # A micro-batch without rows does nothing but write two files.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    if is_local(master):
        options["spark.driver.host"] = options["spark.driver.bindAddress"] = "127.0.0.1"
        if sys.platform == "linux":  # elsewhere libraries that are loaded may not survive a fork
            options["spark.python.daemon.module"] = "qanat.pipeline.python_daemon"
    elif settings.cores:
        options["spark.cores.max"] = str(settings.cores)
    if settings.java_options:
        options["spark.driver.extraJavaOptions"] = settings.java_options
        options["spark.executor.extraJavaOptions"] = settings.java_options
    if settings.folder:
        options["spark.local.dir"] = settings.folder
    return options | settings.settings


def register(spark: "SparkSession") -> None:
    """Makes the format `qanat` known to this session, and to nobody else.

    Spark would find it by itself through the package `pyspark_qanat`, by asking a Python process once for all
    packages of that kind; a session that has it directly does not depend on that process.
    """
    from pyspark_qanat import DefaultSource

    spark.dataSource.register(DefaultSource)


def prepare_environment(*, local: bool = True) -> None:
    """What Spark's launcher and its Python workers read from the environment."""
    environment = os.environ
    environment["JAVA_HOME"] = str(find_java().home)
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Every worker would compile PySpark and pandas anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)


def _launch(conf: "SparkConf", master: str) -> None:
    """Starts Java, unless it runs. It says hello before its logging is set up, so its words go where nobody
    reads them unless it fails."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    with tempfile.TemporaryFile() as words, putting_off_interrupts() as interrupted:
        try:
            gateway = launch_gateway(conf, popen_kwargs={"stderr": words, "stdout": words})  # type: ignore[no-untyped-call]
        except Exception as error:
            words.seek(0)
            said = words.read().decode(errors="replace").strip().splitlines()
            told = f"; Java said: {said[-1]}" if said else ""
            raise NoSpark(
                f"Spark does not start with master {master!r}: {_first_line(error)}{told}"
            ) from error
    if interrupted:
        gateway.proc.kill()
        gateway.shutdown()
        raise KeyboardInterrupt
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
