"""What the commands for a deployment share: which one is meant, and how its regions are shown."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qanat.nodes.deployment.home import Home

WHERE = """\
The deployment is the one in --data, else in QANAT_HOME, else the only one that runs on this machine.
"""


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the deployment's folder (default: QANAT_HOME, else ~/.local/state/qanat/NAME)",
    )


def find_home(args: argparse.Namespace, *, running: bool = True) -> Home:
    from qanat.nodes.deployment.home import find

    return find(args.data, os.environ, running=running)
