"""`qanat down`: stop a deployment."""

from __future__ import annotations

import argparse
import os

from qanat.cli.deployments import WHERE, add_data, find_home
from qanat.cli.main import OK
from qanat.events.errors import LocalError

EXAMPLES = f"""\
examples:
  qanat down               stop every process; data and ports stay for the next `qanat up`
  qanat down --wipe        stop it and remove its data
  qanat down --data DIR

Nodes get SIGTERM, and SIGKILL after 12 seconds. The exit code is also 0 if nothing ran.
{WHERE}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument(
        "--wipe", action="store_true", help="remove its data, and its folder if nothing else is in it"
    )


def run(args: argparse.Namespace) -> int:
    from qanat.operate.operations import stop
    from qanat.operate.other_deployments import remove_note

    home = find_home(args, running=False)
    ran = stop(home)
    remove_note(home, os.environ)
    if args.wipe and home.folder.exists():
        if not home.exists():
            raise LocalError(f"{home.folder} holds no deployment; nothing was removed")
        home.wipe()
        gone = f"removed {home.folder}" if not home.folder.exists() else f"removed its data in {home.folder}"
        print(f"stopped; {gone}" if ran else f"nothing ran; {gone}")
    elif ran:
        print(f"stopped; the data stay in {home.folder}")
    else:
        print(f"nothing ran in {home.folder}")
    return OK
