"""`qanat kill`: kill a node of a deployment, for drills."""

from __future__ import annotations

import argparse

from qanat.cli.deployments import WHERE, add_data, find_home
from qanat.cli.main import OK

EXAMPLES = f"""\
examples:
  qanat kill eu/proxy-1             kill -9; it restarts after 3 seconds
  qanat kill eu/proxy-1 --for 30    restart after 30 seconds
  qanat kill eu/coordinator-1 --stay  restart by `qanat start eu/coordinator-1`
  qanat kill links                  the process of the links between regions

`qanat status` names the nodes. The kill is like a crash: the node says no goodbye and flushes nothing.
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
        help="time until the restart (default 3)",
    )
    away.add_argument("--stay", action="store_true", help="no restart until `qanat start NODE`")
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    from qanat.operate.control import call

    pause_s = None if args.stay else max(0.0, args.pause_s)
    was = call(find_home(args), "kill", node=args.node, pause_s=pause_s)["was"]
    back = f"until `qanat start {args.node}`" if args.stay else f"for {pause_s:g} s"
    print(f"{args.node} {'is killed' if was == 'running' else 'did not run'} and stays down {back}")
    return OK
