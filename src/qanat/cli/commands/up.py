"""`qanat up`: start a deployment and return when every region serves."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from qanat.cli.deployments import add_data, add_wait
from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.options import add_json
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.operate.file import Deployment
    from qanat.operate.home import Home

EXAMPLES = """\
examples:
  qanat up                      three regions, two replicas each, on this machine
  qanat up shop.toml            the deployment in this file
  qanat up shop.toml --data /srv/shop
  qanat status                  show its state
  qanat down                    stop it and keep its data
  qanat down --wipe             stop it and remove its data

Without FILE it starts the deployment that is in the folder, else regions eu, us and asia with a stream each
(eu-events, …). docs/operating.md describes the file. Ctrl-C ends the wait and leaves the deployment running.
Exit codes: 0 every region serves; 1 some region does not serve yet, or the running deployment differs from
the file; 2 the file has a mistake (the error names the line and the expected value; nothing has changed).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="a deployment file")
    add_data(parser)
    add_wait(parser)
    add_json(parser, "end with one line of JSON: folder, and the URL of each region")


def run(args: argparse.Namespace) -> int:

    from qanat.operate.file import read
    from qanat.operate.home import Home, folder_of
    from qanat.operate.other_deployments import leave_note

    given = read(args.file) if args.file else None
    home = Home(folder_of(given.name if given else "local", args.data, os.environ))
    try:
        return _up(args, given, home)
    except KeyboardInterrupt:
        if home.supervised is not None or home.is_held():
            leave_note(home, os.environ)  # by which other commands find what goes on
        print(f"\nqanat: {_left(home)}", file=sys.stderr, flush=True)
        raise


def _left(home: Home) -> str:
    """The state after Ctrl-C, and how to follow or stop the deployment."""
    if home.supervised is None and not home.is_held():
        return "nothing was started"
    option = f" --data {home.folder}"
    return (
        f"the deployment continues to start in the background, with its data in {home.folder};"
        f" `qanat status{option}` shows it, `qanat down{option}` stops it"
    )


def _up(args: argparse.Namespace, given: Deployment | None, home: Home) -> int:
    import json

    from qanat.operate.file import standard
    from qanat.operate.operations import start, wait_until_serving
    from qanat.operate.other_deployments import leave_note

    words = sys.stderr if args.json else sys.stdout

    def say(text: str) -> None:
        print(text, file=words, flush=True)

    began = time.monotonic()
    if home.supervised is not None:
        if given is not None and home.decided(given) != home.deployment:
            say(f"the deployment that runs in {home.folder} differs from {args.file}; change it with")
            say(f"  qanat apply {args.file}")
            return FOUND_WRONG
        say(f"the deployment in {home.folder} already runs")
    else:
        deployment = given or home.deployment
        if deployment is None and home.exists():
            raise LocalError(
                f"{home.folder} has a deployment, but {home.deployment_file} and its copy are gone:"
                f" give its file (`qanat up FILE`), or restore it from a backup"
            )
        deployment = deployment or standard()
        count = sum(region.replicas for region in deployment.regions.values())
        say(f"starting {deployment.name}: {len(deployment.regions)} regions, {count} replicas")
        start(home, deployment)
    leave_note(home, os.environ)
    overview = wait_until_serving(home, lambda text: say(f"  {text}"), args.wait)
    urls = overview.urls()
    say(f"every region serves ({time.monotonic() - began:.1f} s); data in {home.folder}")
    width = max(map(len, urls))
    for region, url in urls.items():
        say(f"  {region:<{width}}  {url}")
    if args.json:
        print(json.dumps({"name": overview.supervisor["name"], "folder": str(home.folder), "regions": urls}))
    return OK
