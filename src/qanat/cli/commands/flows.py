"""`qanat flows`: each shard of each application: who has it, how far it is, what is marked."""

from __future__ import annotations

import argparse
import json

from qanat.cli.main import OK
from qanat.cli.options import add_json, whole
from qanat.cli.publishers import WHERE, add_publisher, find, lag
from qanat.cli.tables import table

EXAMPLES = f"""\
examples:
  qanat flows                                    those farthest behind first
  qanat flows --publisher shop.toml --application cache
  qanat flows --subscriber cache/web-1/4711/a3f2 --json
  qanat flows --caravan 3                        who travels in it
  qanat flows --application cache --shard 17

behind is in sequence numbers of the log, as far as it was read; lag is in time; marked is where it would go
on after a crash.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_publisher(parser)
    parser.add_argument("--application", metavar="NAME")
    parser.add_argument("--shard")
    parser.add_argument("--subscriber", metavar="NAME")
    parser.add_argument("--caravan", metavar="NUMBER", type=whole)
    parser.add_argument("--limit", type=whole, default=100, help="at most so many (default 100)")
    add_json(parser, "all that is known of each, as one JSON object")


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
            flow["subscriber"] or "nobody",
            "waits" if flow["caravan"] is None else str(flow["caravan"]),
            flow["position"],
            flow["behind"],
            lag(flow["lag_s"]),
            flow["marked"],
            _note(flow),
        )
        for flow in found["flows"]
    ]
    print(table(heads, rows) if rows else "there are no such flows")
    if found["count"] > len(rows):
        print(f"… and {found['count'] - len(rows):,} more, less far behind; --limit shows more")
    for name, problem in found.get("problems", {}).items():
        print(f"{name}: {problem}")
    return OK


def _note(flow: dict[str, object]) -> str:
    notes = [
        f"with {flow['company']}" if flow["company"] else "",
        "goes to another" if flow["leaving"] else "",
        "a loss is to be told" if flow["untold_loss"] else "",
    ]
    return ", ".join(filter(None, notes))
