"""`qanat caravans`: the readers of a publisher's log or of a server's streams, their flows and their
reasons."""

from __future__ import annotations

import argparse
import json
from typing import Any

from qanat.cli.main import OK
from qanat.cli.options import add_json, whole
from qanat.cli.publishers import WHERE, Server, add_publisher, add_server, amount, find
from qanat.cli.tables import table
from qanat.events.errors import LocalError, RemoteError

EXAMPLES = f"""\
examples:
  qanat caravans                                 readers, their speed, and the reason for each
  qanat caravans --publisher shop.toml --decisions 50
  qanat caravans --json
  qanat move index --company night               override the policy; `qanat move --help`
  qanat publisher limits caravans_max=6 near=5000

  qanat caravans --server qanat-data             subscribers that have fallen behind, by stream
  qanat caravans --server http://127.0.0.1:7412 --stream prices --json
  qanat caravans --server qanat-data --set caravans_max=12 --reset total_bytes_s
  qanat move reports --company night --server qanat-data

{WHERE}A change by --set at a server lasts until you reset it or the server stops."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_publisher(parser)
    add_server(parser)
    parser.add_argument("--stream", default="", metavar="NAME", help="with --server: only this stream")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with --server: change a limit of [caravans], docs/configuration.md",
    )
    parser.add_argument(
        "--reset",
        action="append",
        default=[],
        metavar="KEY",
        help="with --server: return to the file's value",
    )
    parser.add_argument(
        "--decisions",
        type=whole,
        default=10,
        metavar="N",
        help="show the last N decisions (default 10)",
    )
    add_json(parser, "one JSON object with every detail")


def run(args: argparse.Namespace) -> int:
    if args.server:
        return _of_server(args)
    if args.stream or args.set or args.reset:
        raise LocalError(
            "--stream, --set and --reset need --server; use `qanat publisher limits` for a publisher"
        )
    publisher = find(args)
    status = publisher.status()
    if "caravans" not in status:
        waits = f" and waits: {status['log_problem']}" if status["log_problem"] else "; try again in a moment"
        raise RemoteError(f"the publisher at {publisher.url} is starting{waits}")
    wanted = ("caravans", "plan", "policy", "companies", "companies_waiting", "decisions", "end")
    found = {name: status.get(name) for name in wanted}
    found["decisions"] = (found["decisions"] or [])[: args.decisions]
    if args.json:
        print(json.dumps(found))
        return OK
    _show(found, found["policy"])
    _companies(found)
    _decisions(found["decisions"])
    return OK


def _of_server(args: argparse.Namespace) -> int:
    server = Server(args.server)
    limits = {}
    if args.set or args.reset:
        limits = server.post("/limits", settings=args.set, reset=args.reset)
    found = server.get("/caravans", stream=args.stream)
    if args.stream and not found["streams"]:
        raise LocalError(f"there is no stream {args.stream!r} at {server.url}")
    for stream in found["streams"].values():
        stream["decisions"] = stream["decisions"][: args.decisions]
    if args.json:
        print(json.dumps(found | limits))
        return OK
    for name, limit in limits.get("limits", {}).items():
        if limit["from"] != "file":
            print(f"{name} is {limit['value']}; the file says {limit['file']}")
    quiet = 0
    for name, stream in found["streams"].items():
        if not (stream["trailing"] or stream["decisions"] or args.stream):
            quiet += 1
            continue
        print(
            f"stream {name}: {stream['live']} subscriptions are live, {stream['trailing']} behind"
            f" ({stream['waiting']} wait); {amount(stream['read_bytes'])} bytes read by caravans,"
            f" {amount(stream['sent_bytes'])} sent"
        )
        _show(stream, found["policy"])
        _decisions(stream["decisions"])
        print()
    _companies(found)
    if quiet:
        print(f"{quiet} streams have and had no subscribers behind")
    return OK


def _show(found: dict[str, Any], policy: str) -> None:
    heads = ("caravan", "at", "behind", "flows", "bytes/s", "allowed", "flows of")
    rows = [
        (
            f"{one['number']}{' lead' if one['lead'] else ''}",
            one["at"],
            one["behind"],
            one["flows"],
            amount(one["bytes_per_s"]),
            amount(one["allowed_bytes_per_s"]),
            ", ".join(one.get("applications") or one["subscribers"]),
        )
        for one in found["caravans"] or []
    ]
    print(table(heads, rows) if rows else "no caravans")
    print(f"\nplan, by the policy {policy}: {found['plan']}")
    for one in found["caravans"] or []:
        print(f"caravan {one['number']}: {one['why']}; {one['pace']}")


def _companies(found: dict[str, Any]) -> None:
    for name, members in (found["companies"] or {}).items():
        waits = (
            ", which has no reader (raise caravans_max)" if name in (found["companies_waiting"] or []) else ""
        )
        print(f"company {name}{waits}: {', '.join(members)}")


def _decisions(decisions: list[dict[str, Any]]) -> None:
    if decisions:
        print("\nlast decisions:")
        for each in decisions:
            print(
                f"  {each['ago_s']:>8.1f} s ago  {each['what']:<8} caravan {each['caravan']}: {each['why']}"
            )
