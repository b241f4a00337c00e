"""`qanat flows`: the shards of each application: subscriber, position and datamarker."""

from __future__ import annotations

import argparse
import json

from qanat.cli.main import OK
from qanat.cli.options import add_json, whole
from qanat.cli.publishers import WHERE, add_publisher, find, lag
from qanat.cli.tables import table

EXAMPLES = f"""\
examples:
  qanat flows                                    the farthest behind first
  qanat flows --publisher shop.toml --application cache
  qanat flows --subscriber cache/web-1/4711/a3f2 --json
  qanat flows --caravan 3                        the flows in that caravan
  qanat flows --application cache --shard 17

behind counts sequence numbers up to the last one read; lag is a time; marked is the position at which the
flow resumes after a crash.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_publisher(parser)
    parser.add_argument("--application", metavar="NAME")
    parser.add_argument("--shard")
    parser.add_argument("--subscriber", metavar="NAME")
    parser.add_argument("--caravan", metavar="NUMBER", type=whole)
    parser.add_argument("--limit", type=whole, default=100, help="most flows to list (default 100)")
    add_json(parser, "one JSON object with every detail")


def run(args: argparse.Namespace) -> int:
    found = find(args).get(
        "/flows",
        application=args.application,
        shard=args.shard,
        subscriber=args.subscriber,
        caravan=args.caravan,
        limit=args.limit,
    )
    if args.json:
        print(json.dumps(found))
        return OK
    heads = ("application", "shard", "subscriber", "caravan", "position", "behind", "lag", "marked", "")
    rows = [
        (
            flow["application"],
            flow["shard"] or "''",
            flow["subscriber"] or "–",
            "waits" if flow["caravan"] is None else str(flow["caravan"]),
            flow["position"],
            flow["behind"],
            lag(flow["lag_s"]),
            flow["marked"],
            _note(flow),
        )
        for flow in found["flows"]
    ]
    print(table(heads, rows) if rows else "no such flows")
    if found["count"] > len(rows):
        print(f"… and {found['count'] - len(rows):,} more that are less behind; --limit shows more")
    for name, problem in found.get("problems", {}).items():
        print(f"{name}: {problem}")
    return OK


def _note(flow: dict[str, object]) -> str:
    notes = [
        f"with {flow['company']}" if flow["company"] else "",
        "moves to another subscriber" if flow["leaving"] else "",
        "a loss is unacknowledged" if flow["untold_loss"] else "",
    ]
    return ", ".join(filter(None, notes))
