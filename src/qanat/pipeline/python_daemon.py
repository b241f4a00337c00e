"""Spark's daemon of Python workers with everything loaded that a worker of ours needs: each worker is then a
fork of some milliseconds, where it would load PySpark, Arrow and this package anew for most of a second.

Spark starts it by the setting `spark.python.daemon.module`.
"""

import importlib
import sys

from pyspark.daemon import manager

_OURS = (
    "pyspark_qanat",
    "qanat.client",
    "qanat.pipeline.source.stream_reader",
    "qanat.pipeline.sink.writer",
    "qanat.pipeline.source.batch_reader",
    "qanat.pipeline.changes.stream",
    "qanat.pipeline.sink.writeback",
)


def _load() -> None:
    """What a worker cannot import it says itself, where somebody sees it."""
    worker = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"
    for name in (worker, *_OURS):
        try:
            importlib.import_module(name)
        except ImportError:
            continue


if __name__ == "__main__":
    _load()
    manager()
