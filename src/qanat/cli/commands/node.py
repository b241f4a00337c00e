"""`qanat node`: run one process of a deployment in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from qanat.cli.main import FOUND_WRONG, OK
from qanat.operate.kinds import KINDS

EXAMPLES = """\
examples:
  qanat node coordinator --config eu-coordinator.toml
  qanat node proxy --config eu-proxy-1.toml
  qanat node proxy --config eu-proxy-2.toml --set logging.level=debug
  qanat node publisher --config shop.toml          like `qanat publisher run shop.toml --quiet`

`qanat up` writes such files and runs all processes of a deployment. SIGTERM stops the process gracefully,
SIGHUP reads its file again. docs/region-nodes.md and docs/publisher.md explain the kinds,
docs/configuration.md lists every setting.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=tuple(KINDS), help="kind of process")
    parser.add_argument("--config", metavar="FILE", required=True, help="its settings' file, in TOML")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="any setting, as logging.level=debug",
    )


def run(args: argparse.Namespace) -> int:
    return run_node(args.kind, args.config, args.settings)


def run_node(
    kind: str,
    config: str,
    flags: Sequence[str],
    beside: Callable[[Any], Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Runs a node to its end, and `beside(node)` once it is ready."""
    from qanat.runtime.config import load
    from qanat.runtime.loop import run as run_loop

    node_type, settings = KINDS[kind].node_type(), KINDS[kind].settings_type()
    loaded = partial(load, settings, file=config, environment=os.environ, flags=flags)
    tasks: list[asyncio.Task[None]] = []

    async def main() -> bool:
        node = node_type(loaded)

        def ready() -> None:
            admin = f", operators at http://127.0.0.1:{node.admin.port}/status" if node.admin.port else ""
            print(f"listening on {node.url}{admin}", file=sys.stdout, flush=True)
            if beside is not None:
                tasks.append(asyncio.create_task(beside(node)))

        clean: bool = await node.serve(ready)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        failure: str = getattr(node, "failure", "")
        if failure:
            print(f"qanat: the {kind} stopped: {failure}", file=sys.stderr, flush=True)
        return clean and not failure

    return OK if run_loop(main) else FOUND_WRONG
