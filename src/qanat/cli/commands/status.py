"""`qanat status`: the state of a deployment or a server."""

from __future__ import annotations

import argparse
import json

from qanat.cli.deployment_status import shown
from qanat.cli.deployments import add_data
from qanat.cli.main import OK
from qanat.cli.node_status import shown_node
from qanat.cli.options import add_json
from qanat.cli.target import DEFAULT_URL, Target, find_target, reaching

EXAMPLES = """\
examples:
  qanat status                              the running deployment: regions, chains, streams, links, processes
  qanat status --json | python3 -m json.tool
  qanat status --url qanat://10.0.0.5:7411  one server, or one replica of a region

It shows the first of these that you named or that exists: the server at --url (of several,
host:port,host:port, the first that answers); the deployment in --data; the server at QANAT_URL; the
deployment in QANAT_HOME; the only deployment that runs on this machine; the server at the default address.
Other commands choose in the same way.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help=f"a server (default: QANAT_URL; without a deployment {DEFAULT_URL})")
    add_data(parser)
    add_json(parser, "one JSON object with every detail")


def run(args: argparse.Namespace) -> int:
    target = find_target(args)
    if target.home is None:
        return _server(target, args.json)
    from qanat.operate.overview import look

    overview = look(target.home)
    if args.json:
        print(json.dumps(overview.as_json() | {"because": target.because}))
    else:
        print(shown(overview, target.found))
    return OK


def _server(target: Target, as_json: bool) -> int:
    from qanat.client import Client

    with reaching(target), Client(target.url, patience=0) as client:
        status = client.ask("status")
    if as_json:
        print(json.dumps(status | {"because": target.because}))
    else:
        print(shown_node(status, target.found))
    return OK
