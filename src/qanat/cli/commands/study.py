"""`qanat study`: list the studies, or repeat a paper's experiment and judge its claims."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import msgspec

from qanat.cli.main import OK, USAGE
from qanat.cli.options import add_json, add_master, whole
from qanat.cli.spark import started
from qanat.cli.tables import table
from qanat.events.errors import LocalError
from qanat.studies.registry import STUDIES, Claim, Report, Say, load

EXAMPLES = """\
examples:
  qanat study                           list the studies
  qanat study S14 --quick               two minutes at most: smaller sizes, same claims
  qanat study S14 --out pictures        the whole study, with pictures in that folder
  qanat study S14 --quick --json | tail -1
  qanat study S14 --spark               10^9 events a curve, as Spark jobs on all cores
  qanat study S14 --spark --events 100000000 --master spark://host:7077

The exit code is also 0 if a claim does not hold: that is a result. It is 1 if the study itself fails.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="a study of docs/papers.md; without it the command lists them"
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, two minutes at most")
    add_json(parser, "end with one line of JSON; words go to standard error")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("studies"),
        metavar="FOLDER",
        help="folder for pictures (default: studies)",
    )
    parser.add_argument("--spark", action="store_true", help="run it on Spark, larger (S14)")
    parser.add_argument(
        "--events", type=whole, metavar="N", help="with --spark: events per curve (default 10^9)"
    )
    add_master(parser)


def run(args: argparse.Namespace) -> int:
    if args.id is None:
        return _list(args.json)
    identifier = args.id.upper()
    if identifier not in STUDIES:
        print(f"qanat study: there is no study {args.id!r}; there are {', '.join(STUDIES)}", file=sys.stderr)
        return USAGE
    wrong = _wrong_use(args, identifier)
    if wrong is not None:
        print(f"qanat study: {wrong}", file=sys.stderr)
        return USAGE
    _make(args.out)  # now, not after minutes of work
    words = sys.stderr if args.json else sys.stdout
    print(f"{identifier}: {STUDIES[identifier].about}", file=words, flush=True)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"  {time.monotonic() - began:5.0f} s  {line}", file=words, flush=True)

    report = _report(identifier, args, say)
    print(f"\n{verdicts(report.claims)}\n", file=words)
    for note in report.notes:
        print(f"- {note}", file=words)
    for figure in report.figures:
        print(f"picture: {figure}", file=words)
    if args.json:
        shown = msgspec.to_builtins(report)
        print(json.dumps({name: shown[name] for name in ("study", "claims", "figures")}, ensure_ascii=False))
    return OK


def _wrong_use(args: argparse.Namespace, identifier: str) -> str | None:
    if args.spark and not STUDIES[identifier].on_spark:
        able = ", ".join(name for name, study in STUDIES.items() if study.on_spark)
        return f"{identifier} does not run on Spark ({able} does): leave out --spark"
    if not args.spark and (args.events or args.master):
        return "--events and --master need --spark"
    return None


def _report(identifier: str, args: argparse.Namespace, say: Say) -> Report:
    if not args.spark:
        return load(identifier).run(quick=args.quick, out=args.out, say=say)
    from qanat.cli.under_way import UnderWay

    with UnderWay() as under:
        spark = started(args, None, f"qanat study {identifier}", under)
    return load(identifier).run_on_spark(spark, quick=args.quick, events=args.events, out=args.out, say=say)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(
            f"cannot make the folder {folder}: {error.strerror}; give another with --out"
        ) from error


def verdicts(claims: list[Claim]) -> str:
    """The claims as a table: the paper's value, the measured one, and the verdict."""
    rows = [
        (claim.claim, _text(claim.paper), _text(claim.measured), "yes" if claim.holds else "NO")
        for claim in claims
    ]
    return table(("claim", "paper", "measured", "holds"), rows)


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _list(as_json: bool) -> int:
    if as_json:
        print(json.dumps({"studies": {name: study.about for name, study in STUDIES.items()}}))
        return OK
    width = max(map(len, STUDIES))
    for name, study in STUDIES.items():
        print(f"{name:<{width}}  {study.about}")
    return OK
