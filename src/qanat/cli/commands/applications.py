"""`qanat applications`: list, add, change and remove a publisher's applications while it runs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from qanat.cli.main import OK
from qanat.cli.options import add_json
from qanat.cli.publishers import WHERE, Publisher, add_publisher, find, lag
from qanat.cli.tables import table

EXAMPLES = f"""\
examples:
  qanat applications                                      list the applications and their state
  qanat applications add index start=earliest "where=#table in (orders, items)"
  qanat applications change index "where=price in 1000.." tolerates_ms=500
  qanat applications remove index                         remove it and its datamarkers
  qanat applications reset index                          return to the file's settings
  qanat applications list --publisher shop.toml --json

Settings: where, start, mode, stale_ms, tolerates_ms, copies, compression (docs/configuration.md,
[applications.NAME]). A new filter takes effect with the next read; start counts only for a new
application. If a dataset has several copies, change each publisher.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "do", nargs="?", default="list", choices=("list", "add", "change", "remove", "reset"),
        metavar="ACTION", help="list (the default), add, change, remove, reset",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    add_publisher(parser)
    add_json(parser, "one JSON object with every detail")


def run(args: argparse.Namespace) -> int:
    from qanat.events.errors import LocalError

    publisher = find(args)
    if args.do == "list":
        if args.name:
            raise LocalError("list takes no name; `qanat flows --application NAME` shows one application")
        found = publisher.get("/applications")
    else:
        if not args.name:
            raise LocalError(f"name an application: `qanat applications {args.do} NAME`")
        if args.settings and args.do not in ("add", "change"):
            raise LocalError(f"{args.do} takes no settings")
        found = publisher.post("/applications", do=args.do, name=args.name, settings=args.settings)
    if args.json:
        print(json.dumps(found | {"status": _status(publisher)}))
    else:
        print(_shown(found, publisher))
    return OK


def _status(publisher: Publisher) -> dict[str, Any]:
    return {
        one["name"]: {name: value for name, value in one.items() if name != "flows"}
        for one in publisher.get("/status").get("applications", [])
    }


def _shown(found: dict[str, Any], publisher: Publisher) -> str:
    status = _status(publisher)
    rows = []
    for name, told in found["applications"].items():
        settings, now = told["settings"], status.get(name, {})
        rows.append(
            (
                name,
                settings["mode"],
                settings["where"] or "everything",
                now.get("shards", 0),
                len(now.get("subscribers", ())),
                now.get("behind", 0),
                lag(now.get("lag_s")),
                now.get("updates_per_s", 0.0),
                told["from"],
                now.get("problem", "") or ("" if now.get("begun") else "not started"),
            )
        )
    heads = (
        "application",
        "mode",
        "where",
        "shards",
        "subscribers",
        "behind",
        "lag",
        "updates/s",
        "set by",
        "",
    )
    out = [table(heads, rows) if rows else "no applications; add one with `qanat applications add NAME`"]
    if found["removed"]:
        out.append(f"in the file, but removed by an operator: {', '.join(found['removed'])}")
    return "\n".join(out)
