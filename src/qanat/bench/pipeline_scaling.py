"""What a second core brings to a job on Spark: the audit on one core, one task at a time, and on two with two
tasks.

A task is Java and Python at once, so to have one task is not yet to have one core: everything of the first
run is bound to one CPU. Each run is a process of its own, with a Java of its own. What an audit costs however
little there is to judge (plans, tasks, manifests) does not become less with cores: it is measured by an audit
of a hundredth of the events, in turns with the large one.

| figure | is |
|---|---|
| `scaling_2_cores` | seconds of the audit on one core, to seconds on two |
| `scaling_2_cores_rows` | the same without what the small audit takes: what the rows gain alone |
| `scaling_1_core_rows_per_s`, `scaling_2_cores_rows_per_s` | deliveries judged, all in all |
| `scaling_1_core_fixed_s`, `scaling_2_cores_fixed_s` | the small audit |
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from qanat.bench.figures import medians
from qanat.bench.pipeline_audit import EVENTS, deliveries, prepare, prove
from qanat.events.errors import LocalError

DESCRIPTION = "the audit on one core and on two, in deliveries/s"
SMALL = EVENTS // 100
WARMING = 2
"""Rounds that are not counted: Java compiles what it runs often, which on one core takes twice as long."""


class OneCore(LocalError):
    """There is nothing to compare here."""

    exit_code = 3


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds."""
    from qanat.operate.processes import workers

    if len(os.sched_getaffinity(0)) < 2:
        raise OneCore("what a second core brings cannot be measured on a machine with one")
    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    try:
        for name, events in (("large", EVENTS), ("small", SMALL)):
            (folder / name).mkdir()
            prepare(folder / name, events)
        took: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for cores, rounds_of in took.items():
            told = f"{cores} core{'s' * (cores > 1)}"
            with workers(1, measure, str(folder), cores, rounds) as (child,):
                for number in range(
                    1 - WARMING, rounds + 1
                ):  # a word for each: patience is for one at a time
                    large_s, small_s = child.wait()
                    rate = deliveries(EVENTS) / large_s
                    say(
                        f"{told}, round {number} of {rounds}: {rate:,.0f} deliveries/s, {small_s:.2f} s for"
                        " next to none"
                    )
                    rounds_of.append((large_s, small_s))
            del rounds_of[:WARMING]
        return medians([figures(one, two) for one, two in zip(took[1], took[2], strict=True)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def figures(one: tuple[float, float], two: tuple[float, float]) -> dict[str, float]:
    """Of one round: seconds of the large and of the small audit, on one core and on two."""
    count = deliveries(EVENTS)
    return {
        "scaling_1_core_rows_per_s": count / one[0],
        "scaling_2_cores_rows_per_s": count / two[0],
        "scaling_1_core_fixed_s": one[1],
        "scaling_2_cores_fixed_s": two[1],
        "scaling_2_cores": one[0] / two[0],
        "scaling_2_cores_rows": (one[0] - one[1]) / (two[0] - two[1]),
    }


def measure(pipe: Pipe, folder: str, cores: int, rounds: int) -> None:
    """Says the seconds of each round."""
    from qanat.pipeline.session import SparkSettings, open_session

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])  # what it starts is bound as well
    settings = SparkSettings(cores=cores, memory="2g", folder=f"{folder}/spark-{cores}")
    spark = open_session(settings, f"bench scaling {cores}")
    pipe.send("ready")
    try:
        for _ in range(WARMING + rounds):
            large_s = prove(spark, Path(folder, "large"))
            pipe.send((large_s, prove(spark, Path(folder, "small"), SMALL)))
    finally:
        spark.stop()
