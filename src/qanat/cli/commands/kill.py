"""`qanat kill`: kill a node of a deployment, for drills."""

from __future__ import annotations

import argparse

from qanat.cli.deployments import WHERE, add_data, find_home
from qanat.cli.main import OK

EXAMPLES = f"""\
examples:
  qanat kill eu/proxy-1             kill -9; it is back after 3 seconds
  qanat kill eu/proxy-1 --for 30    after 30 seconds
  qanat kill eu/coordinator-1 --stay  when `qanat start eu/coordinator-1` says so
  qanat kill links                  the process through which the links go

`qanat status` names the nodes. It is killed as a crash would: no goodbye, nothing flushed.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="its name, as eu/proxy-1")
    away = parser.add_mutually_exclusive_group()
    away.add_argument(
        "--for",
        type=float,
        default=3.0,
        metavar="SECONDS",
        dest="pause_s",
        help="how long it stays away (default 3)",
    )
    away.add_argument("--stay", action="store_true", help="until `qanat start NODE`")
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    from qanat.operate.control import call

    pause_s = None if args.stay else max(0.0, args.pause_s)
    was = call(find_home(args), "kill", node=args.node, pause_s=pause_s)["was"]
    back = f"until `qanat start {args.node}`" if args.stay else f"for {pause_s:g} s"
    print(f"{args.node} {'is killed' if was == 'running' else 'did not run'} and stays away {back}")
    return OK
