"""What a second core brings to a job on Spark: the audit with one task at a time, and with two.

Each is a process of its own, with a Java of its own. A task is Java and Python at once, which wait for each other most of the time but not all of it; so where there are
only two cores, one task has a little more than one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from qanat.bench.figures import medians
from qanat.bench.pipeline_audit import DELIVERIES, prepare, prove

DESCRIPTION = "the audit on one core and on two, in deliveries/s"


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds."""
    from qanat.nodes.processes import workers

    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    try:
        prepare(folder)
        took: dict[int, list[float]] = {}
        for cores in (1, 2):
            with workers(1, measure, str(folder), cores, rounds) as (child,):
                took[cores] = child.wait()
            rates = ", ".join(f"{DELIVERIES / each:,.0f}" for each in took[cores])
            say(f"{cores} core{'s' * (cores > 1)}: {rates} deliveries/s")
        return medians(
            [
                {
                    "scaling_1_core_rows_per_s": DELIVERIES / one,
                    "scaling_2_cores_rows_per_s": DELIVERIES / two,
                    "scaling_2_cores": one / two,
                }
                for one, two in zip(took[1], took[2], strict=True)
            ]
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(pipe: Pipe, folder: str, cores: int, rounds: int) -> None:
    """Seconds of each round, after one that is not counted."""
    from qanat.pipeline.session import SparkSettings, open_session

    settings = SparkSettings(cores=cores, memory="2g", folder=f"{folder}/spark-{cores}")
    spark = open_session(settings, f"bench scaling {cores}")
    pipe.send("ready")
    try:
        pipe.send([prove(spark, Path(folder)) for _ in range(rounds + 1)][1:])
    finally:
        spark.stop()
