"""`qanat streams`: what streams a server or a region has."""

from __future__ import annotations

import argparse
import json

from qanat.cli.main import OK
from qanat.cli.node_status import stream_table
from qanat.cli.options import add_json
from qanat.cli.target import add_target, find_target

EXAMPLES = """\
examples:
  qanat streams
  qanat streams --url qanat://10.0.0.5:7411 --json
  qanat streams --url qanat://10.0.0.5:7411,10.0.0.6:7411   of a region, by the first replica that answers
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_json(parser, "a JSON array")


def run(args: argparse.Namespace) -> int:
    from qanat.client import Client

    target = find_target(args)
    target.say("streams of")
    with Client(target.url, patience=0) as client:
        streams = client.ask("streams")
    if args.json:
        print(json.dumps(streams))
    elif not streams:
        print("no streams yet; publish to one: echo hello | ./qanat pub greetings")
    else:
        print(stream_table(streams))
    return OK
