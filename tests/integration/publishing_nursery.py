"""Publishers, subscribers and coordinators in processes of their own, to be killed: one line of JSON on
standard input starts one, whose number is printed. What they load is loaded once, before they are forked."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from qanat.applications import Callbacks, DataLoss, Datamarker, Delivery, InstanceSettings, Update, run
from qanat.capture.mariadb import reader as _mariadb  # noqa: F401
from qanat.capture.rocksdb import reader as _rocksdb  # noqa: F401  # loaded before the first fork
from qanat.publisher.node import PublisherNode
from qanat.publisher.settings import PublisherSettings
from qanat.replica.coordinator import CoordinatorNode
from qanat.replica.settings import CoordinatorSettings
from qanat.runtime.config import load
from qanat.runtime.loop import run as run_loop

pa.array([b""])  # which loads what each child would load for itself at its first array
NODES: dict[str, Any] = {
    "publisher": (PublisherNode, PublisherSettings),
    "coordinator": (CoordinatorNode, CoordinatorSettings),
}


def _key_and_value(update: Update) -> tuple[bytes, bytes]:
    """Of RocksDB, as they are; of others, the key as text and the row as JSON."""
    row = update.after or update.before or {}
    if isinstance(row.get("key"), bytes):
        return row["key"], b"" if update.after is None else update.after["value"]
    return update.key.encode(), b"" if update.after is None else json.dumps(update.after).encode()


class Keeper(Callbacks):
    """Writes down all that it is told, in the order in which it is told. While there is a file
    `<application>.stall`, it stands still."""

    def __init__(self, folder: Path, application: str) -> None:
        self._stall = folder / f"{application}.stall"
        path = folder / f"{application}.{os.getpid()}.{time.time_ns()}"
        self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _write(self, *lines: str) -> None:
        os.write(self._out, "".join(f"{line}\n" for line in lines).encode())

    def on_shard_notice(self, shard: str) -> None:
        self._write(f"notice {shard}")

    def on_updates(self, delivery: Delivery) -> None:
        while self._stall.exists():
            time.sleep(0.01)
        lines = []
        for update in delivery.rows():
            key, value = _key_and_value(update)
            lines.append(
                f"update {update.shard} {update.position} {update.op.name} {key.hex()} {value.hex()}"
            )
        self._write(*lines)

    def on_token(self, marker: Datamarker) -> None:
        self._write(f"token {len(marker.positions)} {marker.last}")

    def on_data_loss(self, loss: DataLoss) -> None:
        self._write(f"lost {','.join(loss.shards)} {loss.after} {loss.upto}")


def subscribe(folder: str, application: str, publishers: list[str], name: str) -> None:
    settings = InstanceSettings(name=name)
    run(Keeper(Path(folder), application), application=application, publishers=publishers, settings=settings)


def serve(kind: str, config: str, ready: str) -> None:
    node_type, settings = NODES[kind]

    async def main() -> None:
        node = node_type(partial(load, settings, file=config))

        def started() -> None:
            text = json.dumps({"url": node.url, "admin": node.admin.port})
            Path(f"{ready}.new").write_text(text, encoding="utf-8")
            Path(f"{ready}.new").rename(ready)

        await node.serve(started)

    run_loop(main)


def run_script(path: str, *arguments: str) -> None:
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


DOES: dict[str, Any] = {"subscriber": subscribe, "script": run_script}


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        kind, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                asyncio.set_event_loop(None)
                DOES.get(kind, partial(serve, kind))(*arguments)
                os._exit(0)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
        print(child, flush=True)


if __name__ == "__main__":
    main()
