"""`qanat down`: stop a deployment."""

from __future__ import annotations

import argparse
import os

from qanat.cli.deployments import WHERE, add_data, find_home
from qanat.cli.main import OK
from qanat.events.errors import LocalError

EXAMPLES = f"""\
examples:
  qanat down               stop every process; data and ports are kept for the next `qanat up`
  qanat down --wipe        and remove the data
  qanat down --data DIR

Nodes are asked to stop (SIGTERM) and killed when they do not within 12 seconds. Exit code 0 also when nothing
ran.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument(
        "--wipe", action="store_true", help="remove its data and, if nothing else is in it, its folder"
    )


def run(args: argparse.Namespace) -> int:
    from qanat.operate.operations import stop
    from qanat.operate.other_deployments import remove_note

    home = find_home(args, running=False)
    ran = stop(home)
    remove_note(home, os.environ)
    if args.wipe and home.folder.exists():
        if not home.exists():
            raise LocalError(f"{home.folder} holds no deployment; it is left alone")
        home.wipe()
        gone = (
            f"{home.folder} is removed"
            if not home.folder.exists()
            else f"its data in {home.folder} are removed"
        )
        print(f"stopped; {gone}" if ran else f"nothing ran; {gone}")
    elif ran:
        print(f"stopped; data stay in {home.folder}")
    else:
        print(f"nothing ran in {home.folder}")
    return OK
