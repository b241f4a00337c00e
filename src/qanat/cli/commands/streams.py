"""`qanat streams`: list the streams of a server or a region, as `qanat stream ls` does."""

from __future__ import annotations

import argparse

from qanat.cli.commands.stream import ls
from qanat.cli.options import add_json
from qanat.cli.target import add_target

EXAMPLES = """\
examples:
  qanat streams
  qanat streams --url qanat://10.0.0.5:7411 --json
  qanat streams --url qanat://10.0.0.5:7411,10.0.0.6:7411   a region's, from the first replica that answers
  qanat stream info NAME                                    describe one of them
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add_json(parser, "a JSON array")


def run(args: argparse.Namespace) -> int:
    return ls(args)
