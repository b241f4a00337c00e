"""`qanat status`: how a server is doing."""

from __future__ import annotations

import argparse
import json

from qanat.cli.commands.streams import stream_table
from qanat.cli.main import OK
from qanat.cli.options import add_json, add_url

EXAMPLES = """\
examples:
  qanat status
  qanat status --json | python3 -m json.tool
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser)
    add_json(parser, "all of it as one JSON object")


def run(args: argparse.Namespace) -> int:
    from qanat.client import Client

    with Client(args.url) as client:
        status = client.ask("status")
    if args.json:
        print(json.dumps(status))
        return OK
    print(f"{status['name']} at {status['url']}: {status['state']}, up {_duration(status['uptime_s'])}")
    print(f"data in {status['data']}, process {status['pid']}, version {status['version']}")
    print(f"{status['connections']} connections, {status['refused_batches']} publishes refused as malformed")
    if status["streams"]:
        print()
        print(stream_table(status["streams"]))
    return OK


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    shown = [f"{value} {unit}" for value, unit in parts if value]
    return " ".join(shown[:2]) or "0 s"
