"""Many seeds of one scenario, over all cores."""

import os
import shlex
from collections.abc import Callable, Generator
from concurrent.futures import as_completed
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from qanat.sim.processes import pool
from qanat.sim.run import Outcome

CHUNK_SEEDS = 8
"""Seeds per task: enough that starting a task costs nothing, few enough that progress shows."""

RunSeed = Callable[[int], Outcome]
OnOutcome = Callable[[Outcome], None]


@dataclass
class Sweep:
    """What a range of seeds came to."""

    first: int
    last: int
    runs: int = 0
    messages: int = 0
    failures: list[Outcome] = field(default_factory=list)


def replay_command(path: Path | str, seed: int) -> str:
    """The one command that shows a run again."""
    return f"./qanat simulate {shlex.quote(str(path))} --seed {seed}"


def sweep(
    run_seed: RunSeed,
    first: int,
    last: int,
    *,
    workers: int | None = None,
    fail_fast: bool = False,
    on_outcome: OnOutcome = lambda outcome: None,
) -> Sweep:
    """Run every seed in `first..last`; `run_seed` must be importable, since other processes call it.

    `on_outcome` hears of each run as it ends, in no fixed order. With `fail_fast` no new run begins
    after a violation.
    """
    outcomes = _outcomes(run_seed, first, last, workers or os.cpu_count() or 1)
    return gather(outcomes, first, last, fail_fast=fail_fast, on_outcome=on_outcome)


def gather(
    outcomes: Generator[Outcome], first: int, last: int, *, fail_fast: bool, on_outcome: OnOutcome
) -> Sweep:
    """What outcomes of `first..last` come to, wherever they were run; it is closed when no more are
    wanted."""
    result = Sweep(first, last)
    with closing(outcomes):
        for outcome in outcomes:
            result.runs += 1
            result.messages += outcome.messages
            if outcome.violations:
                result.failures.append(outcome)
            on_outcome(outcome)
            if fail_fast and outcome.violations:
                break
    result.failures.sort(key=lambda failure: failure.seed)
    return result


def _outcomes(run_seed: RunSeed, first: int, last: int, workers: int) -> Generator[Outcome]:
    seeds = range(first, last + 1)
    if workers == 1 or len(seeds) == 1:
        yield from map(run_seed, seeds)
        return
    chunk = max(1, min(CHUNK_SEEDS, len(seeds) // workers))
    with pool(workers) as processes:
        tasks = [
            processes.submit(_run_chunk, run_seed, seeds[at : at + chunk])
            for at in range(0, len(seeds), chunk)
        ]
        for task in as_completed(tasks):
            yield from task.result()


def _run_chunk(run_seed: RunSeed, seeds: range) -> list[Outcome]:
    return [run_seed(seed) for seed in seeds]
