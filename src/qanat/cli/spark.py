"""Starts Spark for a command, with its settings and a line of progress."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from qanat.cli.options import spark_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qanat.cli.under_way import UnderWay
    from qanat.pipeline.session import SparkSettings


def started(
    args: argparse.Namespace, settings: SparkSettings | None, name: str, under: UnderWay
) -> SparkSession:
    """A session with the chosen master; `under` shows the wait."""
    from qanat.pipeline.session import open_session

    chosen = spark_settings(args, settings)
    under.say(f"starting Spark with master {chosen.master}")
    spark = open_session(chosen, name)
    under.done()
    return spark
