"""`qanat bench`: list the benchmarks, or run one and print its results."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, cast

import qanat.bench
from qanat.bench.figures import Figure, medians
from qanat.bench.ways import only_tcp
from qanat.cli.beside import add_beside, ending_in_order, ready
from qanat.cli.main import OK, USAGE
from qanat.cli.options import add_json, whole

EXAMPLES = """\
examples:
  qanat bench                           list the benchmarks
  qanat bench filter                    run one, with a table of results
  qanat bench broadcast --rounds 5 --json | tail -1
  qanat bench sim --clients 30000       three simulated regions with 30,000 clients in all
  qanat bench pipeline --only streams   one part of a benchmark
  qanat bench broadcast --tcp
        as between machines: no Unix socket, no shared files, no shelf
  qanat bench broadcast --beside redis --beside kafka
                                        beside a real Redis and a real Kafka, with ratios; over TCP
  qanat bench broadcast --markdown      with and without --tcp in turns, as in README's table
"""

DEFAULT_ROUNDS = 3  # the smallest number whose median ignores one disturbed round


TCP, SHORT = "TCP, as between machines", "one machine, by short ways"
Cells = Callable[[Mapping[str, float]], dict[str, str]]


class Benchmark(Protocol):
    DESCRIPTION: str

    def run(self, rounds: int, say: Callable[[str], None]) -> dict[str, float]: ...


class Parted(Protocol):
    def run_only(self, part: str, rounds: int, say: Callable[[str], None]) -> dict[str, float]: ...


class Sized(Protocol):
    def run_clients(self, clients: int, say: Callable[[str], None]) -> dict[str, float]: ...


class Compared(Protocol):
    def run_beside(
        self, peers: Sequence[str], rounds: int, say: Callable[[str], None]
    ) -> dict[str, float]: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="a benchmark; without it the command lists them")
    parser.add_argument(
        "--rounds",
        type=whole,
        default=DEFAULT_ROUNDS,
        help="results are medians of N rounds, with the lowest and the highest",
        metavar="N",
    )
    parser.add_argument(
        "--clients",
        type=whole,
        help="for simulations of any size: one run with N clients",
        metavar="N",
    )
    parser.add_argument("--only", help="for benchmarks with several parts: only this part", metavar="PART")
    parser.add_argument(
        "--tcp",
        action="store_true",
        help="as between machines: processes take no short ways to each other (transport.short_ways)",
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help=(
            "run each round with and without --tcp, in turns; end with a Markdown table with a"
            " column for each"
        ),
    )
    add_beside(parser)
    add_json(parser, "end with one line of JSON; progress goes to standard error")


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
    sized, parted, compared = cast(Sized, module), cast(Parted, module), cast(Compared, module)
    if args.clients is not None and not hasattr(module, "run_clients"):
        print(f"qanat bench: {args.name} takes no --clients", file=sys.stderr)
        return USAGE
    if args.only is not None and not hasattr(module, "run_only"):
        print(f"qanat bench: {args.name} takes no --only", file=sys.stderr)
        return USAGE
    if args.beside and not hasattr(module, "run_beside"):
        print(f"qanat bench: {args.name} takes no --beside; only broadcast does", file=sys.stderr)
        return USAGE
    if args.markdown and (args.tcp or args.json or args.beside or args.clients is not None):
        print(
            "qanat bench: --markdown measures both ways and excludes --tcp, --json, --beside and --clients",
            file=sys.stderr,
        )
        return USAGE
    tcp = args.tcp or bool(args.beside)
    peers: dict[str, str | None] = {}
    progress = sys.stderr if args.json or args.markdown else sys.stdout
    print(f"{args.name}: {module.DESCRIPTION}", file=progress)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"  {line}", file=progress, flush=True)

    def measure(rounds: int) -> dict[str, float]:
        if here := [name for name, why in peers.items() if why is None]:
            return compared.run_beside(here, rounds, say)
        return module.run(rounds, say) if args.only is None else parted.run_only(args.only, rounds, say)

    if args.markdown:
        columns = _both_ways(args.rounds, measure, say)
        print("\n".join(markdown(columns, getattr(module, "TABLE", None))))
        return OK
    with ExitStack() as stack:
        if tcp:
            stack.enter_context(only_tcp())
        if args.beside:
            stack.enter_context(ending_in_order())
            peers.update(ready(args.beside, say))
        if args.clients is None:
            figures = measure(args.rounds)
            print(f"  {args.rounds} rounds in {time.monotonic() - began:.0f} s", file=progress)
        else:
            figures = sized.run_clients(args.clients, say)
    if args.json:
        spread = {k: [v.lowest, v.highest] for k, v in figures.items() if isinstance(v, Figure)}
        told: dict[str, object] = {"bench": args.name, "tcp": tcp, "figures": figures, "spread": spread}
        print(json.dumps(told | ({"beside": peers} if peers else {})))
    else:
        print(table(figures))
    return OK


def available() -> list[str]:
    """The benchmarks: the modules of `qanat.bench` with a DESCRIPTION."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules(qanat.bench.__path__)
        if describe(module.name) is not None
    )


def describe(name: str) -> str | None:
    """A benchmark's description, read without importing its module."""
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


def _both_ways(
    rounds: int, measure: Callable[[int], dict[str, float]], say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Results by way; the way that begins a round alternates."""
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for number in range(rounds):
        for tcp in (True, False) if number % 2 == 0 else (False, True):
            say(f"round {number + 1} of {rounds}, {TCP if tcp else SHORT}")
            with only_tcp(tcp):
                found[tcp].append(measure(1))
    return {TCP: medians(found[True]), SHORT: medians(found[False])}


def markdown(columns: Mapping[str, Mapping[str, float]], cells: Cells | None) -> list[str]:
    """A table with a column for each way; `cells` makes its rows, else each result is a row with its
    spread."""
    made = {way: (cells or _plain_cells)(figures) for way, figures in columns.items()}
    rows = [["", *made], ["---"] * (len(made) + 1)]
    rows += [[name, *(column[name] for column in made.values())] for name in next(iter(made.values()))]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _plain_cells(figures: Mapping[str, float]) -> dict[str, str]:
    return {f"`{name}`": f"{_readable(value)}{_spread(value)}" for name, value in figures.items()}


def table(figures: dict[str, float]) -> str:
    """Names to the left, numbers to the right with significant digits; then the lowest and the highest
    round."""
    shown = {name: _readable(value) for name, value in figures.items()}
    left = max(map(len, shown), default=0)
    right = max(map(len, shown.values()), default=0)
    return "\n".join(
        f"  {name:<{left}}  {value:>{right}}{_spread(figures[name])}" for name, value in shown.items()
    )


def _spread(value: float) -> str:
    if not isinstance(value, Figure) or value.lowest == value.highest:
        return ""
    return f"  ({_readable(value.lowest)} … {_readable(value.highest)})"


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
        print("no benchmarks")
    return OK
