"""The server or deployment of a command: one rule for every command, and its description in words.

| the first of these that exists | selects |
|---|---|
| `--url` | that server, or these replicas of a region |
| `--data` | the deployment in that folder |
| `QANAT_URL` | like `--url` |
| `QANAT_HOME` | like `--data` |
| one deployment that runs on this machine | that one; if several run, the command fails and lists them |
| otherwise | the server at the default address |

`--region` names a region of the deployment, and so `QANAT_URL` does not count. Without it commands use the
region that owns the stream.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from qanat.cli.deployments import add_data
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.operate.home import Home

DEFAULT_URL = "qanat://127.0.0.1:7411"


class Target(NamedTuple):
    """`url` is the address for clients; only a deployment has `home` and `region`; `because` is the rule that
    chose it."""

    url: str
    because: str
    home: Home | None = None
    region: str = ""

    def __str__(self) -> str:
        return f"{self.place}{self.found}"

    @property
    def found(self) -> str:
        """The rule in brackets, as the end of a line; empty after `--url`."""
        return "" if self.because == "--url" else f" ({self.because})"

    @property
    def place(self) -> str:
        if self.home is None:
            several = "," in self.url
            return f"the {'servers' if several else 'server'} at {self.url}"
        return f"region {self.region} of the deployment in {self.home.folder}"

    def as_json(self) -> dict[str, str]:
        """The target for programs; a deployment with its folder."""
        found = {"url": self.url, "because": self.because}
        return (
            found
            if self.home is None
            else found | {"deployment": str(self.home.folder), "region": self.region}
        )

    def say(self, doing: str) -> None:
        """Prints the target on standard error, unless `--url` names it."""
        if self.found:
            print(f"qanat: {doing} {self}", file=sys.stderr, flush=True)


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        help="the server, or a region's replicas as host:port,host:port "
        f"(default: QANAT_URL, else the running deployment, else {DEFAULT_URL})",
    )
    parser.add_argument(
        "--region",
        metavar="NAME",
        help="a region of the deployment (default: the one that owns the stream)",
    )
    add_data(parser)


def find_target(
    args: argparse.Namespace, stream: str = "", environment: Mapping[str, str] = os.environ
) -> Target:
    """`stream` decides the region of a deployment, if `--region` does not."""
    region = getattr(args, "region", None)
    if args.url:
        other = "--region" if region else "--data" if args.data else ""
        if other:
            raise LocalError(f"--url names a server and {other} a deployment: give only one of them")
        return Target(args.url, "--url")
    from qanat.operate.home import NotRunning, find

    if environment.get("QANAT_URL") and not args.data and not region:
        return Target(environment["QANAT_URL"], "QANAT_URL")
    try:
        home = find(args.data, environment)
    except NotRunning:
        if args.data or environment.get("QANAT_HOME") or region:
            raise
        return Target(DEFAULT_URL, "the default; no deployment runs here")
    chosen = "--data" if args.data else "QANAT_HOME" if environment.get("QANAT_HOME") else ""
    region = region or _region_of(home, stream)
    return Target(home.url_of(region), chosen or "the only one that runs here", home, region)


@contextmanager
def reaching(target: Target) -> Iterator[None]:
    """Adds to an error how to start a server, if none runs and you named none."""
    from qanat.client import Unavailable

    try:
        yield
    except Unavailable as error:
        if not target.because.startswith("the default"):
            raise
        starts = "`qanat serve` starts a server, `qanat up` three regions"
        raise Unavailable(f"{error}; {starts}", definite=error.definite) from None


def _region_of(home: Home, stream: str) -> str:
    deployment = home.deployment
    if deployment is None:
        raise LocalError(
            f"{home.folder} has no deployment.toml; start the deployment again with `qanat up FILE`"
        )
    settings = deployment.streams.get(stream)
    return settings.owner if settings is not None else next(iter(deployment.regions))
