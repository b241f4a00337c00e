"""`qanat simulate`: run a scenario file on the deterministic simulator, once or over many seeds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.options import add_json, add_master, whole
from qanat.cli.spark import started
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.sim import Outcome, Scenario, Sweep

EXAMPLES = """\
examples:
  qanat simulate scenarios/push_sum_lossy.toml                   one run, described in words
  qanat simulate scenarios/push_sum_lossy.toml --seed 7 --json | tail -1
  qanat simulate scenarios/push_sum_lossy.toml --seed 7 --trace run.txt
                                                   write all events of the run into a file
  qanat simulate scenarios/push_sum_lossy.toml --seeds 0..999    over all cores
  qanat simulate scenarios/push_sum_lossy.toml --seeds 0..999 --fail-fast
  qanat simulate scenarios/push_sum_lossy.toml --seeds 1..100000 --spark --master spark://host:7077
                                                   over the executors of a Spark cluster

Each failure comes with a command that replays it. Ctrl-C stops at once. Exit code 1: a promise was broken.
"""

Seeds = tuple[int, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a scenario (see docs/simulation.md)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, default=0, metavar="N", help="run this seed (default 0)")
    which.add_argument("--seeds", type=_seeds, metavar="A..B", help="run all seeds from A to B")
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="write every event of the run into this file, one per line (only with one seed)",
    )
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
    parser.add_argument(
        "--workers", type=whole, metavar="N", help="number of processes (default: one per core)"
    )
    parser.add_argument("--spark", action="store_true", help="run --seeds as a Spark job")
    add_master(parser)
    add_json(parser, "end with one line of JSON; words go to standard error")


def run(args: argparse.Namespace) -> int:
    from qanat.checks.scenarios import load_scenario

    scenario = load_scenario(args.file)
    if args.spark and (args.seeds is None or args.workers is not None):
        raise LocalError("--spark needs --seeds and excludes --workers: --master sets how many run at once")
    if args.master is not None and not args.spark:
        raise LocalError("--master needs --spark")
    if args.seeds is None:
        return _one(scenario, args)
    if args.trace is not None:
        raise LocalError("--trace needs one --seed, not --seeds: replay the seed that you want to read")
    return _many(scenario, args)


# One seed


def _one(scenario: Scenario, args: argparse.Namespace) -> int:
    from qanat.sim import run as run_scenario

    words = sys.stderr if args.json else sys.stdout
    print(f"{args.file}: {scenario.about or scenario.kit.name}", file=words)
    print(f"  {len(scenario.places)} nodes, seed {args.seed}", file=words, flush=True)
    if args.trace is None:
        outcome = run_scenario(scenario, args.seed)
    else:
        with _opened(args.trace) as out:
            outcome = run_scenario(scenario, args.seed, trace_file=out)
    for line in describe(outcome):
        print(f"  {line}", file=words)
    if args.json:
        shown = [msgspec.to_builtins(violation) for violation in outcome.violations]
        print(json.dumps({"seed": outcome.seed, "trace": outcome.trace, "violations": shown}))
    return FOUND_WRONG if outcome.violations else OK


def describe(outcome: Outcome) -> list[str]:
    """A run in words: its messages, its faults and the verdict."""
    lines = [
        f"{outcome.virtual_us / 1e6:g} s of virtual time, {outcome.timers:,} timers",
        f"{outcome.messages:,} messages delivered, {outcome.sent_bytes:,} bytes sent",
        f"not delivered: {_counts(outcome.dropped)}; delivered twice: {outcome.duplicated:,}",
        f"faults: {_counts(outcome.faults)}",
        f"trace {outcome.trace}",
    ]
    for violation in outcome.violations:
        where = f" at {violation.node}" if violation.node else ""
        lines.append(f"VIOLATION of {violation.checker!r} at {violation.time_us / 1e6:.6f} s{where}:")
        lines.append(f"  {violation.explanation}")
        lines += ["  the events before it:", *(f"    {line}" for line in violation.story)]
    if not outcome.violations:
        settled = (
            "" if outcome.settled_us is None else f", settled {outcome.settled_us / 1e6:g} s after healing"
        )
        lines.append(f"every promise was kept{settled}")
    return lines


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items()) or "none"


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    try:
        with Path(path).open("w", encoding="utf-8") as out:
            yield out
    except OSError as error:
        raise LocalError(f"cannot write the trace to {path}: {error.strerror}") from error


# Many seeds


def run_seed(path: str, seed: int) -> Outcome:
    """One run in any process; each process reads the scenario once."""
    from qanat.checks.scenarios import load_scenario
    from qanat.sim import run as run_scenario

    scenario = _loaded.get(path)
    if scenario is None:
        scenario = _loaded[path] = load_scenario(path)
    return run_scenario(scenario, seed)


_loaded: dict[str, Scenario] = {}


def _many(scenario: Scenario, args: argparse.Namespace) -> int:
    from qanat.sim import replay_command

    first, last = args.seeds
    words = sys.stderr if args.json else sys.stdout
    print(f"{args.file}: {scenario.about or scenario.kit.name}", file=words)
    print(f"  {len(scenario.places)} nodes, seeds {first}..{last}", file=words, flush=True)
    ran = failed = 0
    with _progress(last - first + 1, json_mode=args.json) as progress:

        def on_outcome(outcome: Outcome) -> None:
            nonlocal ran, failed
            ran += 1
            progress.advance()
            if outcome.violations:
                failed += 1
                worst = outcome.violations[0]
                progress.say(
                    f"seed {outcome.seed} broke {worst.checker!r}: {worst.explanation}\n"
                    f"    replay: {replay_command(args.file, outcome.seed)}"
                )

        try:
            result = _swept(scenario, args, on_outcome)
        except KeyboardInterrupt:
            progress.say(f"interrupted after {ran:,} of {last - first + 1:,} runs, {failed:,} failed")
            raise
    verdict = f"{len(result.failures)} failed" if result.failures else "every promise was kept"
    print(f"  {result.runs:,} runs, {result.messages:,} messages: {verdict}", file=words)
    if args.json:
        print(json.dumps(_summary(args.file, result)))
    return FOUND_WRONG if result.failures else OK


def _swept(scenario: Scenario, args: argparse.Namespace, on_outcome: Callable[[Outcome], None]) -> Sweep:
    from qanat.sim import gather, sweep

    first, last = args.seeds
    if not args.spark:
        return sweep(
            partial(run_seed, args.file),
            first,
            last,
            workers=args.workers,
            fail_fast=args.fail_fast,
            on_outcome=on_outcome,
        )
    from qanat.cli.under_way import UnderWay
    from qanat.studies.spark_sweep import outcomes

    with UnderWay() as under:
        context = started(args, None, "qanat simulate", under).sparkContext
    runs = outcomes(context, scenario, first, last)
    return gather(runs, first, last, fail_fast=args.fail_fast, on_outcome=on_outcome)


def _summary(path: str, result: Sweep) -> dict[str, object]:
    from qanat.sim import replay_command

    failures = [
        {
            "seed": failure.seed,
            "violations": [msgspec.to_builtins(violation) for violation in failure.violations],
            "replay": replay_command(path, failure.seed),
        }
        for failure in result.failures
    ]
    return {"seeds": [result.first, result.last], "runs": result.runs, "failures": failures}


class _Progress(Protocol):
    def advance(self) -> None: ...

    def say(self, text: str) -> None: ...


class _Lines:
    """Progress where there is no terminal: a line at every tenth part."""

    def __init__(self, total: int, json_mode: bool) -> None:
        self._total = total
        self._done = 0
        self._out = sys.stderr if json_mode else sys.stdout

    def advance(self) -> None:
        self._done += 1
        if self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            print(f"  {self._done:,} of {self._total:,}", file=self._out, flush=True)

    def say(self, text: str) -> None:
        print(f"  {text}", file=self._out, flush=True)


class _Bar:
    """Progress on a terminal, always on stderr so that stdout can be piped."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("  seeds"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self.progress.add_task("seeds", total=total)

    def advance(self) -> None:
        self.progress.advance(self._task)

    def say(self, text: str) -> None:
        self.progress.console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _progress(total: int, *, json_mode: bool) -> Iterator[_Progress]:
    if not sys.stderr.isatty():
        yield _Lines(total, json_mode)
        return
    bar = _Bar(total)
    with bar.progress:
        yield bar


def _seeds(text: str) -> Seeds:
    first, dots, last = text.partition("..")
    if not (dots and first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"must look like 0..99, first not above last, not {text!r}")
    return int(first), int(last)
