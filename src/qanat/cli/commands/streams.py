"""`qanat streams`: what streams a server has."""

from __future__ import annotations

import argparse
import json

from qanat.cli.main import OK
from qanat.cli.options import add_json, add_url
from qanat.cli.tables import table

EXAMPLES = """\
examples:
  qanat streams
  qanat streams --url qanat://10.0.0.5:7411 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser)
    add_json(parser, "a JSON array")


def run(args: argparse.Namespace) -> int:
    from qanat.client import Client

    with Client(args.url) as client:
        streams = client.ask("streams")
    if args.json:
        print(json.dumps(streams))
    elif not streams:
        print("no streams yet; publish to one: echo hello | ./qanat pub greetings")
    else:
        print(stream_table(streams))
    return OK


def stream_table(streams: list[dict[str, object]]) -> str:
    """One line per stream."""
    return table(
        [
            "stream",
            "first",
            "last",
            "durability",
            "subscribers",
            "largest lag",
            "published",
            "duplicates",
            "",
        ],
        [
            [
                stream["stream"],
                stream["first"],
                int(str(stream["next"])) - 1,
                stream["durability"],
                stream["subscribers"],
                stream["largest_lag"],
                stream["published_events"],
                stream["duplicate_events"],
                f"stopped: {stream['failed']}" if stream["failed"] else "",
            ]
            for stream in streams
        ],
    )
