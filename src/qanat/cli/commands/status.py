"""`qanat status`: how a deployment or a server is doing."""

from __future__ import annotations

import argparse
import json
import os

from qanat.cli.deployment_status import shown
from qanat.cli.deployments import add_data
from qanat.cli.main import OK
from qanat.cli.node_status import shown_node
from qanat.cli.options import DEFAULT_URL, add_json

EXAMPLES = """\
examples:
  qanat status                              of the deployment that runs here: regions, chains, streams, links, processes
  qanat status --json | python3 -m json.tool
  qanat status --url qanat://10.0.0.5:7411  of one server, or of one replica of a region

With --url, or QANAT_URL set, it asks that server, or the first that answers of several (host:port,host:port). Otherwise it
shows the deployment in --data, in QANAT_HOME, or the only one that runs on this machine; and where none runs, the server at
the default address.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help=f"a server (default: QANAT_URL; without a deployment {DEFAULT_URL})")
    add_data(parser)
    add_json(parser, "all of it as one JSON object")


def run(args: argparse.Namespace) -> int:
    url = args.url or os.environ.get("QANAT_URL")
    if not url:
        from qanat.nodes.deployment.home import NotRunning, find
        from qanat.nodes.deployment.overview import look

        try:
            home = find(args.data, os.environ)
        except NotRunning:
            if args.data or os.environ.get("QANAT_HOME"):
                raise
        else:
            overview = look(home)
            print(json.dumps(overview.as_json()) if args.json else shown(overview))
            return OK
    return _server(url or DEFAULT_URL, args.json)


def _server(url: str, as_json: bool) -> int:
    from qanat.client import Client

    with Client(url, patience=0) as client:
        status = client.ask("status")
    if as_json:
        print(json.dumps(status))
        return OK
    print(shown_node(status))
    return OK
