"""Options that the commands for a deployment share: its folder, and how long to wait until it serves."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qanat.operate.home import Home

WHERE = """\
The command uses the deployment in --data, else in QANAT_HOME, else the only one that runs on this machine.
"""


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the deployment's folder (default: QANAT_HOME, else ~/.local/state/qanat/NAME)",
    )


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=float,
        default=90.0,
        metavar="SECONDS",
        help="how long to wait until every region serves (default 90)",
    )


def find_home(args: argparse.Namespace, *, running: bool = True) -> Home:
    from qanat.operate.home import find

    return find(args.data, os.environ, running=running)
