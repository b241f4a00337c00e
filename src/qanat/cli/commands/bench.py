"""`qanat bench`: list the benchmarks, or run one and print its figures."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import qanat.bench
from qanat.cli.main import OK, USAGE
from qanat.cli.options import add_json, whole

EXAMPLES = """\
examples:
  qanat bench                           list what can be measured
  qanat bench filter                    run one, figures in a table
  qanat bench broadcast --rounds 5 --json | tail -1
  qanat bench sim --clients 30000       three simulated regions with so many clients in all
  qanat bench pipeline --only streams   one part of those that have several
"""

DEFAULT_ROUNDS = 3  # the smallest number whose median ignores one disturbed round


class Benchmark(Protocol):
    DESCRIPTION: str

    def run(self, rounds: int, say: Callable[[str], None]) -> dict[str, float]: ...


class Parted(Protocol):
    def run_only(self, part: str, rounds: int, say: Callable[[str], None]) -> dict[str, float]: ...


class Sized(Protocol):
    def run_clients(self, clients: int, say: Callable[[str], None]) -> dict[str, float]: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="which benchmark; without it, list them")
    parser.add_argument(
        "--rounds",
        type=whole,
        default=DEFAULT_ROUNDS,
        help="figures are medians of N rounds",
        metavar="N",
    )
    parser.add_argument(
        "--clients",
        type=whole,
        help="for those that simulate a system of any size: one run with so many clients instead",
        metavar="N",
    )
    parser.add_argument("--only", help="for those that have several parts: this one alone", metavar="PART")
    add_json(parser, "end with one line of JSON; progress goes to stderr")


def run(args: argparse.Namespace) -> int:
    names = available()
    if args.name is None:
        return _list(names, args.json)
    if args.name not in names:
        print(
            f"qanat bench: there is no benchmark {args.name!r}; there are {', '.join(names)}", file=sys.stderr
        )
        return USAGE
    module = cast(Benchmark, importlib.import_module(f"qanat.bench.{args.name}"))
    sized, parted = cast(Sized, module), cast(Parted, module)
    if args.clients is not None and not hasattr(module, "run_clients"):
        print(f"qanat bench: {args.name} takes no --clients", file=sys.stderr)
        return USAGE
    if args.only is not None and not hasattr(module, "run_only"):
        print(f"qanat bench: {args.name} takes no --only", file=sys.stderr)
        return USAGE
    progress = sys.stderr if args.json else sys.stdout
    print(f"{args.name}: {module.DESCRIPTION}", file=progress)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"  {line}", file=progress, flush=True)

    if args.clients is None:
        figures = (
            module.run(args.rounds, say)
            if args.only is None
            else parted.run_only(args.only, args.rounds, say)
        )
        print(f"  {args.rounds} rounds in {time.monotonic() - began:.0f} s", file=progress)
    else:
        figures = sized.run_clients(args.clients, say)
    if args.json:
        print(json.dumps({"bench": args.name, "figures": figures}))
    else:
        print(table(figures))
    return OK


def available() -> list[str]:
    """The modules of `qanat.bench` that are benchmarks: those that describe themselves."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules(qanat.bench.__path__)
        if describe(module.name) is not None
    )


def describe(name: str) -> str | None:
    """A benchmark's description, read without importing what it measures."""
    for folder in qanat.bench.__path__:
        for path in (Path(folder) / f"{name}.py", Path(folder) / name / "__init__.py"):
            if path.is_file():
                return _assigned_text(ast.parse(path.read_text(encoding="utf-8")), "DESCRIPTION")
    return None


def _assigned_text(tree: ast.Module, name: str) -> str | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return str(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                return str(ast.literal_eval(value))
    return None


def table(figures: dict[str, float]) -> str:
    """Names left, numbers right, with as many digits as mean anything."""
    shown = {name: _readable(value) for name, value in figures.items()}
    left = max(map(len, shown), default=0)
    right = max(map(len, shown.values()), default=0)
    return "\n".join(f"  {name:<{left}}  {value:>{right}}" for name, value in shown.items())


def _readable(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _list(names: list[str], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"benches": {name: describe(name) for name in names}}))
        return OK
    width = max(map(len, names), default=0)
    for name in names:
        print(f"{name:<{width}}  {describe(name)}")
    if not names:
        print("there is nothing to measure yet")
    return OK
