"""`qanat monitor`: watch publishers: lag, rates, owners, caravans, losses."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from qanat.cli.main import OK, UNAVAILABLE
from qanat.cli.options import add_json, seconds
from qanat.cli.publishers import DEFAULT, VARIABLE, Publisher, add_publisher, named_by_default

EXAMPLES = f"""\
examples:
  qanat monitor                                  the publisher on this machine, once a second
  qanat monitor --publisher http://db-1:7422 --publisher http://db-2:7422
  qanat monitor --publisher shop.toml --shards 30 --every 5
  qanat monitor --json | python3 -m json.tool    once, with every detail
  qanat monitor --once                           once, for people

behind counts sequence numbers up to the last one that the publisher has read; lag is a time. owner is the
publisher that serves an application. losses are lost ranges reported to the application. --publisher (a
file, a folder, an address) names publishers, else {VARIABLE} with commas, else {DEFAULT}.
Exit code 3 if none answers.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_publisher(parser, several=True)
    parser.add_argument(
        "--every", type=seconds, default=1.0, metavar="SECONDS", help="time between two updates (default 1)"
    )
    parser.add_argument(
        "--shards", type=int, default=10, metavar="N", help="list the N flows farthest behind (default 10)"
    )
    parser.add_argument("--once", action="store_true", help="print the state once and exit")
    add_json(parser, "print the state once, as one JSON object")


def run(args: argparse.Namespace) -> int:
    from qanat.cli.publisher_view import screen

    named = args.publisher or named_by_default()
    refreshes = sys.stdout.isatty() and not args.once
    while True:
        statuses, silent = _look(named)
        if args.json:
            print(json.dumps(overview(statuses, silent)))
        else:
            told = [*(f"{where}: {reason}" for where, reason in silent.items())]
            text = "\n".join([screen(statuses, args.shards), *told] if statuses else told)
            print(f"\x1b[H\x1b[2J{time.strftime('%H:%M:%S')}\n{text}" if refreshes else text, flush=True)
        if args.json or args.once:
            return OK if statuses else UNAVAILABLE
        time.sleep(args.every)


def _look(named: list[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The statuses of publishers that answer, and for each other one the reason."""
    from qanat.events.errors import LocalError, RemoteError

    statuses, silent = [], {}
    for where in named:
        try:
            statuses.append(Publisher(where).status())
        except (RemoteError, LocalError) as error:
            silent[where] = str(error)
    return statuses, silent


def overview(statuses: list[dict[str, Any]], silent: dict[str, str]) -> dict[str, Any]:
    """All publishers, and applications over all of them: each of several copies serves the parts that it
    owns."""
    applications: dict[str, dict[str, Any]] = {}
    for status in statuses:
        for one in status.get("applications", []):
            if status.get("copy") is not None and not one["parts"]:
                continue
            found = applications.setdefault(
                one["name"],
                {"owners": {}, "shards": 0, "subscribers": 0, "behind": 0, "lag_s": 0.0, "updates_per_s": 0.0,
                 "bytes_per_s": 0, "losses": 0, "flows": []},
            )  # fmt: skip
            found["owners"][status["name"]] = one["parts"]
            found["subscribers"] = max(found["subscribers"], len(one["subscribers"]))
            for name in ("shards", "updates_per_s", "bytes_per_s", "losses"):
                found[name] += one[name]
            found["behind"] = max(found["behind"], one["behind"])
            lags = (found["lag_s"], one["lag_s"])
            found["lag_s"] = None if None in lags else max(lags)
            found["flows"] += one["flows"]
    publishers = [
        {
            **{name: value for name, value in status.items() if name != "applications"},
            "applications": [
                {name: value for name, value in one.items() if name != "flows"}
                for one in status.get("applications", [])
            ],
        }
        for status in statuses
    ]
    return {"time": time.time(), "applications": applications, "publishers": publishers, "silent": silent}
