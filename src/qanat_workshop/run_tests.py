"""`qanat test`: everything that must be true before a change is kept, in one command.

Lint, format, types and tests run one after the other; a failure of one does not hide what the next would say.
On a build server up to three tests that failed beside all the others are run once more, alone; one that
passes only then is named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from qanat.cli.main import FOUND_WRONG, OK
from qanat_workshop import servers

DAMAGE = "tests/integration/test_damage_table.py"
DAMAGE_PAIRS = "tests/integration/test_region_pairs.py"
"""The tests that damage every kind of file, and journals while another machine is away, write the page of
what happens then."""
STEPS = ("lint", "format", "types", "tests")
JOBS = "4"
"""Twice the cores of a small build server: tests that kill, restart and wait for processes leave with three
two fifths of its time idle."""
SOAK_TIMEOUT_S = 3600
"""For one soak test that names no limit of its own."""
SECOND_CHANCES = 3
"""Processes are killed and servers started by hundreds of tests on two cores; more failures than this are no
accident."""


@dataclass(frozen=True, slots=True)
class Outcome:
    step: str
    passed: bool
    seconds: float
    unsteady: tuple[str, ...] = ()
    """Tests that failed beside the others and passed alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "qanat test [--fast | --soak] [--only STEP] [-n N] [--update-papers] [--update-damage] [pytest's own"
        " arguments ...]"
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument(
        "--fast", action="store_true", help="leave out tests/integration, tests/spark and tests marked slow"
    )
    extent.add_argument(
        "--soak",
        action="store_true",
        help="run the tests marked soak, which no other run includes, and only them",
    )
    parser.add_argument(
        "--only", action="append", choices=STEPS, help="run this step alone (may be repeated)"
    )
    parser.add_argument(
        "-n", dest="jobs", default=JOBS, metavar="N", help=f"processes for the tests ({JOBS}; 0: this one)"
    )
    parser.add_argument("--update-papers", action="store_true", help="refresh docs/papers.md, then stop")
    parser.add_argument("--update-damage", action="store_true", help="refresh docs/damage.md, then stop")


def run(args: argparse.Namespace) -> int:
    root = checkout()
    if args.update_papers:
        return _update_papers(root)
    if args.update_damage:
        words = [sys.executable, "-m", "pytest", "-n", "0", "-q", DAMAGE, "--update-damage", *args.extra]
        return OK if _run_step("tests", words, root).passed else FOUND_WRONG
    wanted = args.only or (["tests"] if args.soak else STEPS)
    steps = [step for step in STEPS if step in wanted]
    if "tests" in steps and not args.fast:
        servers.install_missing(_say)
    outcomes = [_run_step(step, command(step, args), root) for step in steps]
    if outcomes[-1].step == "tests" and not outcomes[-1].passed and servers.in_ci():
        outcomes[-1] = _second_chance(outcomes[-1], args, root)
    _summary(outcomes)
    return OK if all(outcome.passed for outcome in outcomes) else FOUND_WRONG


def command(step: str, args: argparse.Namespace) -> list[str]:
    """The command line of one step, to be run at the root of the checkout."""
    python = [sys.executable, "-m"]
    match step:
        case "lint":
            return [*python, "ruff", "check"]
        case "format":
            return [*python, "ruff", "format", "--check"]
        case "types":
            return [*python, "mypy"]
    words = [*python, "pytest", "-n", "0" if "--pdb" in args.extra else args.jobs]
    words += ["--dist", "worksteal"]  # the slow tests stand together: who is done takes some over
    if args.fast:
        words += ["-m", "not slow", "--ignore=tests/integration", "--ignore=tests/spark"]
    if args.soak:
        words += ["--soak", f"--timeout={SOAK_TIMEOUT_S}"]
    return words + list(args.extra)


def checkout() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parents[2]


def child_environment() -> dict[str, str]:
    """Ours, without the switch that would make every child process compile its libraries again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _run_step(step: str, words: list[str], root: Path) -> Outcome:
    _say(f"{step}: {' '.join(['python', *words[1:]])}")
    began = time.monotonic()
    returncode = subprocess.run(words, cwd=root, env=child_environment(), check=False).returncode
    return Outcome(step, returncode == 0, time.monotonic() - began)


def _second_chance(first: Outcome, args: argparse.Namespace, root: Path) -> Outcome:
    """What failed, once more and by itself: a test that hangs or fails only beside others is named, and does
    not hide a change that is right."""
    failed = failures(root)
    if not 0 < len(failed) <= SECOND_CHANCES:
        return first
    _say(
        f"{len(failed)} failed beside the others and {'is' if len(failed) == 1 else 'are'} run once more,"
        " alone"
    )
    alone = command("tests", argparse.Namespace(fast=False, soak=args.soak, jobs="0", extra=failed))
    again = _run_step("tests", alone, root)
    seconds = first.seconds + again.seconds
    return Outcome("tests", again.passed, seconds, tuple(failed) if again.passed else ())


def failures(root: Path) -> list[str]:
    """What failed in pytest's last run."""
    try:
        kept = json.loads((root / ".pytest_cache" / "v" / "cache" / "lastfailed").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return sorted(kept)


def _summary(outcomes: list[Outcome]) -> None:
    _say("summary")
    for outcome in outcomes:
        print(f"  {outcome.step:<8} {'ok' if outcome.passed else 'FAILED':<7} {outcome.seconds:6.1f} s")
    for name in (name for outcome in outcomes for name in outcome.unsteady):
        print(f"  UNSTEADY {name}: failed beside the others, passed alone")
    failed = [outcome.step for outcome in outcomes if not outcome.passed]
    print(f"  failed: {', '.join(failed)}" if failed else "  all is well", flush=True)


def _update_papers(root: Path) -> int:
    from qanat_workshop.papers import update

    changed = update(root)
    print(f"docs/papers.md: {changed} rows changed" if changed else "docs/papers.md: nothing to change")
    return OK


def _say(line: str) -> None:
    print(f"== {line}", flush=True)
