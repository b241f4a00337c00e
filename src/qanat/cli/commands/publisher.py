"""`qanat publisher`: run a publisher in the foreground; show and change its limits while it runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from typing import Any

from qanat.cli.main import OK
from qanat.cli.options import add_action, add_json, seconds
from qanat.cli.publishers import WHERE, add_publisher, find
from qanat.cli.tables import table
from qanat.events.errors import LocalError

EXAMPLES = f"""\
examples:
  qanat publisher run shop.toml                  with live numbers, until Ctrl-C
  qanat publisher run shop.toml --quiet --set logging.format=json
  qanat publisher limits                         all of [publisher], with the file's values
  qanat publisher limits caravan_bytes_s=20e6 caravans_max=6
  qanat publisher limits --reset caravan_bytes_s
  qanat publisher keep /etc/qanat/publishers     run a publisher for each file in the folder

A file:
  [node]
  listen = "0.0.0.0:7421"
  data = "/var/lib/qanat/shop"
  [log]
  url = "mariadb://qanat@localhost/"             as for `qanat changes`
  sharding = "hash:64"
  [applications.cache]
  start = "latest"

SIGTERM stops it gracefully, SIGHUP reads its file again. docs/publisher.md explains publishers,
docs/configuration.md lists every setting. For limits:
{WHERE}"""
_PLAIN_S = 10.0
"""Time between two lines where there is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = add_action(commands, "run", "run a publisher in the foreground", EXAMPLES)
    run.add_argument("file", metavar="FILE", help="its settings' file, in TOML")
    run.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="any setting, as publisher.near=500",
    )
    run.add_argument("--quiet", action="store_true", help="no live numbers")
    run.add_argument(
        "--every", type=seconds, default=1.0, metavar="SECONDS", help="time between two updates (default 1)"
    )
    keep = add_action(
        commands,
        "keep",
        "run a publisher for each file in a folder",
        EXAMPLES,
        "Run a publisher for each *.toml in a folder, if it is for this machine ([monitor] enabled,"
        " hosts). It follows new, changed and removed files, and restarts publishers that"
        " die.\nTheir logs are in FOLDER/logs.",
    )
    keep.add_argument("folder", metavar="FOLDER")
    keep.add_argument(
        "--host", default="", metavar="NAME", help="this machine's name (default: its host name)"
    )
    keep.add_argument(
        "--every", type=seconds, default=2.0, metavar="SECONDS", help="time between two checks (default 2)"
    )
    add_json(keep, "a JSON object after each change")
    limits = add_action(commands, "limits", "show and change the limits of a running publisher", EXAMPLES)
    limits.add_argument(
        "settings", nargs="*", metavar="KEY=VALUE", help="of [publisher], docs/configuration.md"
    )
    limits.add_argument(
        "--reset", metavar="KEY", action="append", default=[], help="return to the file's value"
    )
    add_publisher(limits)
    add_json(limits, "one JSON object")


def run(args: argparse.Namespace) -> int:
    match args.action:
        case "run":
            return _run(args)
        case "keep":
            return _keep(args)
    return _limits(args)


def _keep(args: argparse.Namespace) -> int:
    from pathlib import Path

    from qanat.operate.publisher_keeper import LOGS, Keeper
    from qanat.runtime import logs
    from qanat.runtime.loop import run as run_loop

    folder = Path(args.folder)
    if not folder.is_dir():
        raise LocalError(f"{folder} is no folder: give a folder with the settings' files of publishers")
    logs.set_up("warning")

    async def main() -> None:
        stop, keeper = asyncio.Event(), Keeper(folder, args.host)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)

        def told() -> None:
            status = keeper.status()
            if args.json:
                print(json.dumps(status), flush=True)
                return
            kept = ", ".join(status["publishers"]) or "no publisher"
            print(f"{status['host']} keeps {kept}", flush=True)
            for name, problem in status["problems"].items():
                print(f"{name}: {problem}", file=sys.stderr, flush=True)
            for name, why in status["died"].items():
                tried = f"restarting it; its log is {folder / LOGS / name}.log"
                print(f"{name} ended, {why} ({tried})", file=sys.stderr, flush=True)

        await keeper.run(args.every, stop, told)

    run_loop(main)
    return OK


def _run(args: argparse.Namespace) -> int:
    from qanat.cli.commands.node import run_node
    from qanat.cli.publisher_view import screen

    watched = sys.stdout.isatty()

    async def numbers(node: Any) -> None:
        while True:
            await asyncio.sleep(args.every if watched else max(args.every, _PLAIN_S))
            status = node.whole_status()
            if watched:
                print(f"\x1b[H\x1b[2J{screen([status], shards=10)}", flush=True)
            else:
                print(_line(status), flush=True)

    return run_node("publisher", args.file, args.settings, None if args.quiet else numbers)


def _line(status: dict[str, Any]) -> str:
    applications = status.get("applications", [])
    behind = max((one["behind"] for one in applications), default=0)
    return (
        f"{status['read_updates']:,} updates read, {status['sent_updates']:,} sent, {len(status['caravans'])}"
        f" caravans, {len(applications)} applications, at most {behind:,} numbers behind,"
        f" {status['losses']} losses"
    )


def _limits(args: argparse.Namespace) -> int:
    publisher = find(args)
    publisher.status()
    if args.settings or args.reset:
        found = publisher.post("/limits", settings=args.settings, reset=args.reset)
    else:
        found = publisher.get("/limits")
    if args.json:
        print(json.dumps(found))
        return OK
    rows = [
        (
            name,
            str(told["value"]),
            f"{told['from']}: {told['file']}" if told["from"] != "file" else "",
            "fixed" if told["fixed"] else "",
        )
        for name, told in found["limits"].items()
    ]
    print(table(("limit", "value", "changed by", ""), rows))
    return OK
