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
            cores_told = f"{cores} core{'s' * (cores > 1)}"
            with workers(1, measure, str(folder), cores, rounds) as (child,):
                for number in range(rounds + 1):  # a word for each: patience is for one at a time
                    taken = child.wait()
                    say(f"{cores_told}, round {number} of {rounds}: {DELIVERIES / taken:,.0f} deliveries/s")
                    took.setdefault(cores, []).append(taken)
            del took[cores][0]
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
    """Says the seconds of each round; the first is not to be counted."""
    from qanat.pipeline.session import SparkSettings, open_session

    settings = SparkSettings(cores=cores, memory="2g", folder=f"{folder}/spark-{cores}")
    spark = open_session(settings, f"bench scaling {cores}")
    pipe.send("ready")
    try:
        for _ in range(rounds + 1):
            pipe.send(prove(spark, Path(folder)))
    finally:
        spark.stop()
