"""`qanat start`: start a killed node again."""

from __future__ import annotations

import argparse

from qanat.cli.deployments import WHERE, add_data, find_home
from qanat.cli.main import OK

EXAMPLES = f"""\
examples:
  qanat start eu/proxy-1    after `qanat kill eu/proxy-1 --stay`

It also ends a pause: a node that waits for its restart starts now.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="its name, as eu/proxy-1")
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    from qanat.operate.control import call

    call(find_home(args), "start", node=args.node)
    print(f"started {args.node}")
    return OK
