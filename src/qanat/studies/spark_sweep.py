"""Many seeds of one scenario over the executors of a Spark cluster.

A run is a function of scenario and seed, so it does not matter who runs it, nor how often: a task that is run
again because its machine died gives the same outcomes, and Spark hands on those of one attempt only. Outcomes
come back as each task ends, through an accumulator, not with the job's end: a failure among a hundred
thousand runs is told at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from qanat.sim import Outcome, Scenario, run
from qanat.studies.spark_progress import Job

if TYPE_CHECKING:
    from pyspark import SparkContext

SEEDS_PER_TASK = 32
"""At most: enough that a task's start costs nothing, few enough that outcomes come back soon."""
TASKS_PER_CORE = 4
"""At least, where there are enough seeds: runs take unequal times, and the last ones should not take long."""


def outcomes(context: SparkContext, scenario: Scenario, first: int, last: int) -> Generator[Outcome]:
    """Runs all seeds in `first..last`, in no fixed order; whoever closes this ends what still runs."""
    from pyspark import AccumulatorParam

    class Arriving(AccumulatorParam["deque[Outcome]"]):
        def zero(self, value: deque[Outcome]) -> deque[Outcome]:
            return deque()

        def addInPlace(self, value1: deque[Outcome], value2: deque[Outcome]) -> deque[Outcome]:
            value1.extend(value2)
            return value1

    arrived: deque[Outcome] = deque()
    inbox = context.accumulator(arrived, Arriving())
    seeds = range(first, last + 1)
    tasks = context.parallelize(seeds, task_count(len(seeds), context.defaultParallelism))

    def work(mine: Iterable[int]) -> None:
        for seed in mine:
            inbox.add(deque([run(scenario, seed)]))

    with Job(context, "seeds", lambda: tasks.foreachPartition(work)) as job:
        while job.runs():
            yield from _drained(arrived)
        job.result()
        yield from _drained(arrived)


def task_count(seeds: int, cores: int) -> int:
    return max(1, min(seeds, max(-(-seeds // SEEDS_PER_TASK), cores * TASKS_PER_CORE)))


def _drained(arrived: deque[Outcome]) -> Iterator[Outcome]:
    """Those that are there; more come in meanwhile, from another thread."""
    while arrived:
        yield arrived.popleft()
