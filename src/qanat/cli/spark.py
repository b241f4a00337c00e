"""Starting Spark for a command: the settings that it was given, and a word to who waits for it."""

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
    """A session with the master that was asked for; `under` says meanwhile what is waited for."""
    from qanat.pipeline.session import open_session

    chosen = spark_settings(args, settings)
    under.say(f"starting Spark with master {chosen.master}")
    spark = open_session(chosen, name)
    under.done()
    return spark
