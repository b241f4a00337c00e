"""The session that all jobs share: it has the format, and says nothing of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.spark.class_archive import quick_java

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
        "from qanat.pipeline.session import SparkSettings, open_session\n"
        f"spark = open_session(SparkSettings(master='local[1]', memory='512m', java_options='{quick_java()}'))\n"
        "assert spark.range(3).count() == 3\n"
        "spark.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
