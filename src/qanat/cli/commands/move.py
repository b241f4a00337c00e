"""`qanat move`: move flows to another subscriber, caravan or position, and release them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from qanat.cli.main import OK
from qanat.cli.options import add_json, whole
from qanat.cli.publishers import WHERE, Server, add_publisher, add_server, find
from qanat.events.errors import LocalError

EXAMPLES = f"""\
examples:
  qanat move cache --shard 7 --shard 9 --to cache/web-2/812/9f1c
        to that subscriber, when its present one has finished
  qanat move index --company night               its flows get a caravan of their own, called night
  qanat move cache --shard 7 --company night     add one flow to that company
  qanat move cache --shard 7 --caravan 3         with the flows in caravan 3, which then stay together
  qanat move index --release                     the policy decides again
  qanat move index --position 1042:0
        continue after it: skip or repeat the updates in between

  qanat move reports --company night --server qanat-data
        move a client of a server, by its name or name/subscription
  qanat move reports --caravan 3 --stream prices --server qanat-data
  qanat move reports --release --server qanat-data

Without --shard it moves all shards of the application. `qanat caravans` shows companies, and why caravans
are as they are.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("application", metavar="APPLICATION")
    parser.add_argument("--shard", action="append", default=[], dest="shards")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="SUBSCRIBER", help="move to this subscriber of the application")
    where.add_argument(
        "--company", metavar="NAME", help="share a caravan with this company, whatever the policy says"
    )
    where.add_argument(
        "--caravan", metavar="NUMBER", type=whole, help="share a caravan with the flows in this one"
    )
    where.add_argument("--release", action="store_true", help="let the policy decide again")
    where.add_argument("--position", metavar="SEQUENCE:INDEX", help="continue after this position of the log")
    add_publisher(parser)
    add_server(parser)
    parser.add_argument("--stream", default="", metavar="NAME", help="with --server: the caravan's stream")
    add_json(parser, "the publisher's answer")


def _of_publisher(args: argparse.Namespace, wanted: dict[str, Any]) -> dict[str, Any]:
    publisher = find(args)
    publisher.status()
    found: dict[str, Any] = publisher.post(
        "/move", application=args.application, shards=args.shards, **wanted
    )
    return found


def run(args: argparse.Namespace) -> int:
    wanted = {
        name: getattr(args, name)
        for name in ("to", "company", "caravan", "release", "position")
        if getattr(args, name)
    }
    if args.server:
        if args.shards or args.to or args.position:
            raise LocalError(
                "--server takes only --company, --caravan and --release: a subscriber of a stream"
                " keeps its position"
            )
        answer = Server(args.server).post("/move", client=args.application, stream=args.stream, **wanted)
    else:
        answer = _of_publisher(args, wanted)
    if args.json:
        print(json.dumps(answer))
    elif "to" in answer:
        waits = answer["waits_for"]
        print(f"{answer['flows']} flows go to {answer['to']}: {answer['what']}")
        if waits:
            print(
                f"the flows of {', '.join(waits)} stay, because it is away: try again when its"
                f" lease has run out"
            )
    elif "position" in answer:
        print(f"{answer['flows']} flows continue after {answer['position']}")
    elif "members" in answer:
        print(f"company {answer['company']} shares a caravan: {', '.join(answer['members'])}")
    else:
        print(f"released to the policy: {', '.join(answer['released'])}")
    return OK
