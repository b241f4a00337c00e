"""`qanat apply`: change a running deployment to match its file."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from qanat.cli.deployments import add_data, add_wait
from qanat.cli.main import OK

if TYPE_CHECKING:
    from qanat.operate.file import Deployment
    from qanat.operate.home import Home

EXAMPLES = """\
examples:
  qanat apply shop.toml --dry-run   show the changes
  qanat apply shop.toml             make the changes

Streams, regions, replicas and compression change in running nodes. For a stream's policy or durability, and
for sections such as [chain], nodes restart one after the other, each when every region serves again. The
owner of a stream cannot change: the command refuses it and then changes nothing.
Exit codes: 0 done, 1 refused, 2 the file has a mistake, 3 no deployment runs.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a deployment file")
    parser.add_argument("--dry-run", action="store_true", help="show the changes and make none")
    add_wait(parser)
    add_data(parser)


def run(args: argparse.Namespace) -> int:
    from qanat.operate.file import read
    from qanat.operate.home import Home, NotRunning, folder_of

    new = read(args.file)
    home = Home(folder_of(new.name, args.data, os.environ))
    if home.supervised is None:
        raise NotRunning(f"no deployment runs in {home.folder}; start it with `qanat up {args.file}`")
    return change_to(home, new, dry_run=args.dry_run, wait_s=args.wait)


def change_to(home: Home, new: Deployment, *, dry_run: bool, wait_s: float) -> int:
    """Prints the changes, makes them, and waits until every region serves again."""
    from qanat.operate.operations import change
    from qanat.operate.overview import look
    from qanat.operate.plan import compare

    before = home.deployment
    new = home.decided(new)
    plan = compare(before or new, new, home.owners, look(home).chains())
    plan.check()
    if not plan.words:
        print("nothing to change")
    for line in plan.words:
        print(line, flush=True)
    if plan.words and not dry_run:
        change(home, new, lambda text: print(f"  {text}", flush=True), wait_s)
        print("done: every region serves")
    return OK
