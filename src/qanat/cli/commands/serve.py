"""`qanat serve`: run a stream server in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from qanat.cli.main import FOUND_WRONG, OK

EXAMPLES = """\
examples:
  qanat serve                                     on this machine, data in ./qanat-data
  qanat serve --listen 127.0.0.1:0 --data /tmp/q  any free port, another folder
  qanat serve --durability interval               acknowledge before the disk sync
  qanat serve --config server.toml --set transport.heartbeat_ms=500

Stop it with Ctrl-C or SIGTERM: it answers open requests, syncs and ends. SIGHUP reads its settings again.
docs/configuration.md lists every setting.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", default=os.environ.get("QANAT_CONFIG"), help="a TOML file"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="address for clients (node.listen)")
    parser.add_argument("--data", metavar="FOLDER", help="folder of the streams (node.data)")
    parser.add_argument(
        "--durability",
        choices=("always", "interval", "memory"),
        help="durability of streams without a section of their own (log.mode)",
    )
    parser.add_argument(
        "--admin-port", metavar="PORT", help="port of HTTP for operators; 0 takes any free one (admin.port)"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="any setting, as transport.heartbeat_ms=500",
    )


def run(args: argparse.Namespace) -> int:
    from qanat.runtime.config import load
    from qanat.runtime.loop import run as run_loop
    from qanat.serving.server import StreamServer
    from qanat.serving.settings import StreamServerSettings

    named = {
        "node.listen": args.listen,
        "node.data": args.data,
        "log.mode": args.durability,
        "admin.port": args.admin_port,
    }
    flags = [*(f"{key}={value}" for key, value in named.items() if value is not None), *args.settings]
    loaded = partial(load, StreamServerSettings, file=args.config, environment=os.environ, flags=flags)

    async def main() -> bool:
        server = StreamServer(loaded)

        def ready() -> None:
            admin = f", operators at http://127.0.0.1:{server.admin.port}/status" if server.admin.port else ""
            print(f"listening on {server.url}{admin}", file=sys.stdout, flush=True)

        return await server.serve(ready)

    return OK if run_loop(main) else FOUND_WRONG
