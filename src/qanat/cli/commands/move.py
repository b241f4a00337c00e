"""`qanat move`: flows to another subscriber, to another caravan, to another position; and back."""

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
        to that subscriber, once the one before is done
  qanat move index --company night               its flows travel in a reader of their own, called night
  qanat move cache --shard 7 --company night     and this one with them
  qanat move cache --shard 7 --caravan 3         with those in caravan 3, who stay together from now on
  qanat move index --release                     the policy decides again
  qanat move index --position 1042:0
        go on from there: what came before is not sent, what comes after is, again

  qanat move reports --company night --server qanat-data
        a client of a server, by its name, or name/subscription
  qanat move reports --caravan 3 --stream prices --server qanat-data
  qanat move reports --release --server qanat-data

Without --shard, all shards of the application. `qanat caravans` shows companies, and why caravans are as they
are.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("application", metavar="APPLICATION")
    parser.add_argument("--shard", action="append", default=[], dest="shards")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="SUBSCRIBER", help="to this one of its subscribers")
    where.add_argument(
        "--company", metavar="NAME", help="to travel with that company, whatever the policy says"
    )
    where.add_argument("--caravan", metavar="NUMBER", type=whole, help="to travel with those in that caravan")
    where.add_argument("--release", action="store_true", help="as the policy says again")
    where.add_argument("--position", metavar="SEQUENCE:INDEX", help="to go on after this position of the log")
    add_publisher(parser)
    add_server(parser)
    parser.add_argument("--stream", default="", metavar="NAME", help="with --server: whose caravan is meant")
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
                "a subscriber of a stream goes on where it is; at a --server there are --company, --caravan"
                " and --release"
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
                f"but those of {', '.join(waits)} stay: it is away, and its lease decides; try again after it"
            )
    elif "position" in answer:
        print(f"{answer['flows']} flows go on after {answer['position']}")
    elif "members" in answer:
        print(f"{answer['company']} travels together: {', '.join(answer['members'])}")
    else:
        print(f"the policy decides again on {', '.join(answer['released'])}")
    return OK
