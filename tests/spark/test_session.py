"""The session that all jobs share: it has the format, and says nothing of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.class_archive import quick_java
from tests.waiting import wait_until

from qanat.pipeline import columns
from qanat.pipeline.session import SparkSettings, open_session, options_of, under_submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_tabular_form_is_the_same_for_spark_and_for_arrow(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    frame = spark.createDataFrame([], columns.DDL)
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(columns.ARROW)


def test_a_process_has_one_session(spark: SparkSession) -> None:
    assert open_session(SparkSettings(master="local[1]")) is spark


def test_settings_of_spark_itself_win() -> None:
    settings = SparkSettings(master="spark://host:7077", cores=3, settings={"spark.ui.enabled": "true"})
    options = options_of(settings)
    assert options["spark.ui.enabled"] == "true"
    assert options["spark.cores.max"] == "3"
    assert "spark.driver.bindAddress" not in options


@pytest.mark.paper("D9")
def test_the_master_of_spark_submit_holds_unless_another_was_asked_for() -> None:
    told = {"spark.master": "yarn"}
    assert under_submit(SparkSettings(), told).master == "yarn"
    assert under_submit(SparkSettings(master="local[1]"), told).master == "local[1]"
    assert "spark.driver.bindAddress" not in options_of(under_submit(SparkSettings(), told))


@pytest.mark.slow
def test_spark_and_java_print_nothing() -> None:
    program = (
        "from qanat.pipeline.session import SparkSettings, open_session\nspark ="
        " open_session(SparkSettings(master='local[1]', memory='512m',"
        f" java_options='{quick_java()}'))\nassert spark.range(3).count() == 3\nspark.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_an_interruption_while_java_starts_leaves_no_java() -> None:
    mark = f"-Dqanat.test={uuid.uuid4()}"
    program = (
        "from qanat.pipeline.session import SparkSettings,"
        " open_session\nopen_session(SparkSettings(master='local[1]', memory='512m',"
        f" java_options='{quick_java()} {mark}'))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: javas(mark))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(100) == -signal.SIGINT
        wait_until(lambda: not javas(mark), 20)
    finally:
        for pid in (*javas(mark), *([process.pid] if process.poll() is None else [])):
            os.kill(pid, signal.SIGKILL)


def javas(mark: str) -> list[int]:
    """Processes that have it among their words."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            words = (each / "cmdline").read_bytes().split(b"\0") if each.name.isdecimal() else []
        except OSError:
            continue
        if words and words[0].endswith(b"/java") and mark.encode() in words:
            found.append(int(each.name))
    return found
