"""A publisher is killed and comes back: an application that may be served by a second copy, and one that may
not (Wormhole, Fig. 10)."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import msgspec

from qanat.operate.processes import Worker, workers
from qanat.replica.coordinator import CoordinatorNode
from qanat.replica.settings import CoordinatorSettings
from qanat.runtime.config import load
from qanat.runtime.loop import run
from qanat.studies.publishing import Came, Errand, apply, publish, publisher_text, rocks_writer
from qanat.studies.w15.replay import VALUE_BYTES

SESSION_MS, LEASE_MS = 800.0, 600.0
"""What a failure is told by; the paper has a minute."""
PRIMARY, SECONDARY = "one", "two"
SETTLE_S = 4.0
"""From the last update until what has not come by then counts as missed."""


class Plan(msgspec.Struct, frozen=True):
    """In seconds from when updates begin."""

    seconds: float
    fails_s: float
    returns_s: float
    rows_per_s: float = 1_000.0

    @property
    def rows(self) -> int:
        return int(self.seconds * self.rows_per_s)


class Failover(msgspec.Struct, frozen=True):
    """What each of the two applications was given; times are from when updates began."""

    plan: Plan
    began: float
    failed_s: float
    returned_s: float
    """When the publisher that was started again listened."""
    many: Came
    """May be served by either copy."""
    single: Came
    """Only by the primary."""

    def delivered(self, came: Came, publisher: str, start_s: float, stop_s: float) -> int:
        return sum(
            count
            for at, who, count in came.deliveries
            if who == publisher and start_s <= at - self.began < stop_s
        )

    @property
    def takeover_s(self) -> float:
        """From the failure until the secondary's first updates."""
        first = [at for at, who, _ in self.many.deliveries if who == SECONDARY]
        return min(first, default=float("inf")) - self.began - self.failed_s


def coordinate(pipe: Pipe, folder: str) -> None:
    """A coordinator; says its URL."""

    async def main() -> None:
        flags = (
            "node.name=coordinator",
            "node.listen=127.0.0.1:0",
            f"node.data={folder}",
            "admin.enabled=false",
            "logging.level=error",
            "server.session_min_ms=200",
        )
        node = CoordinatorNode(partial(load, CoordinatorSettings, flags=flags))
        await node.serve(lambda: pipe.send(node.url))

    run(main)


def fail_over(plan: Plan) -> Failover:
    with (
        tempfile.TemporaryDirectory(prefix="qanat-w15-") as name,
        rocks_writer(Path(name, "a"), Path(name, "b"), value_bytes=VALUE_BYTES) as writer,
    ):
        folder, children = Path(name), []
        try:
            children.append(Worker(coordinate, str(folder / "coordinator")))
            coordinator = children[0].wait()
            ports = [_free_port() for _ in range(2)]
            urls = tuple(f"qanat://127.0.0.1:{port}" for port in ports)

            def start(which: int) -> Worker:
                text = _settings(writer.urls[which], coordinator)
                listen = f"127.0.0.1:{ports[which]}"
                child = Worker(
                    publish, str(folder / "ab"[which].upper()), text, listen, (PRIMARY, SECONDARY)[which]
                )
                children.append(child)
                return child

            writer.write(100)
            primary, secondary = start(0), start(1)
            for child in (primary, secondary):
                child.wait()
            with workers(2, apply) as (many, single):
                for sink, application in ((many, "many"), (single, "single")):
                    sink.tell(Errand(application=application, urls=urls, positions=True))
                time.sleep(3 * SESSION_MS / 1000)  # until the preferred copy has both applications
                began = time.monotonic()
                writer.begin(plan.rows, plan.rows_per_s)
                _sleep_until(began + plan.fails_s)
                os.kill(primary.pid, signal.SIGKILL)
                failed_s = time.monotonic() - began
                _sleep_until(began + plan.returns_s)
                start(0).wait()
                returned_s = time.monotonic() - began
                writer.end()
                time.sleep(SETTLE_S)
                for sink in (many, single):
                    sink.tell("end")
                return Failover(plan, began, failed_s, returned_s, many.wait(), single.wait())
        finally:
            for child in children:
                child.end()


def _settings(log: str, coordinator: str) -> str:
    applications = [
        f'many\nstart = "earliest"\ncopies = ["{PRIMARY}", "{SECONDARY}"]',
        f'single\nstart = "earliest"\ncopies = ["{PRIMARY}"]',
    ]
    limits = {
        "marker_ms": 500.0,
        "lease_ms": LEASE_MS,
        "settle_ms": 50.0,
        "plan_ms": 100.0,
        "announce_ms": 200.0,
        "return_ms": 500.0,
    }
    told = f'[coordinator]\nname = "coordinator"\nurl = "{coordinator}"\n'
    return publisher_text(log, applications, **limits) + (
        f"{told}[session]\ntimeout_ms = {SESSION_MS}\nretry_ms = 100.0\n"
    )


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
