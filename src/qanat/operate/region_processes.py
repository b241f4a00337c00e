"""Whole regions as child processes, as `qanat node` runs them; for tests, benchmarks and studies.

`qanat up` keeps a deployment running; here nobody starts again what ends, so that a drill can kill and start
as it likes.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from qanat.events.durable import make_folder, replace
from qanat.events.errors import LocalError
from qanat.operate import layout, ports
from qanat.operate.cuts import Cuts
from qanat.operate.file import Deployment, decided
from qanat.operate.kinds import LINKS

_PATIENCE_S = 60.0


class NodeProcess:
    """One process; its files stay when it ends."""

    def __init__(self, name: str, kind: str, config: Path, data: Path, url: str, admin_port: int) -> None:
        self.name, self.kind, self.config, self.data, self.url = name, kind, config, data, url
        self._admin_port = admin_port
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        """Starts it without waiting."""
        command = [sys.executable, "-m", "qanat", "node", self.kind, "--config", str(self.config)]
        errors = self.config.with_suffix(".log").open("ab")
        with errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def wait_ready(self, attempts: int = 5) -> None:
        """A port that somebody else has for a moment is tried again."""
        process = self._process
        if process is None or process.stdout is None:
            raise LocalError(f"{self.name} was not started")
        line = process.stdout.readline()
        if line.startswith("listening on"):
            return
        said = self.config.with_suffix(".log").read_text()[-2000:]
        self.stop()
        if attempts <= 1 or "cannot listen" not in said.rpartition("\n")[0].rpartition("\n")[2]:
            raise LocalError(f"{self.name} did not start: {said}")
        time.sleep(0.5)
        self.begin()
        self.wait_ready(attempts - 1)

    def start(self) -> None:
        self.begin()
        self.wait_ready()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code; as `subprocess` has it, below zero for a signal."""
        self.signal(number)
        return self.wait()

    def wait(self) -> int:
        """Until it has ended, by itself or by a signal; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        code = process.wait(_PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()
        return code

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def forget(self) -> None:
        """Its disk is lost."""
        shutil.rmtree(self.data, ignore_errors=True)

    def status(self) -> dict[str, Any]:
        """What it says at /status."""
        found: dict[str, Any] = json.loads(self.get("/status"))
        return found

    def metric(self, name: str) -> float:
        """One number of /metrics that has no labels."""
        lines = self.get("/metrics").decode().splitlines()
        return next(float(line.partition(" ")[2]) for line in lines if line.startswith(f"{name} "))

    def get(self, path: str) -> bytes:
        """What it answers at a page for operators, whatever the code."""
        connection = HTTPConnection(layout.HOST, self._admin_port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()


class RegionProcesses:
    """The processes of a deployment, by name, below one folder."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment, self.folder = deployment, folder
        self._written: Deployment | None = None
        self.ports: dict[str, int] = {}
        self.nodes: dict[str, NodeProcess] = {}
        self.write()

    def write(self) -> None:
        """Writes the nodes' files for `deployment` as it is now, with ports for those that are new."""
        make_folder(self.folder / "data")
        self.deployment = self._written = decided(self.deployment, self._written)
        kinds = layout.nodes(self.deployment)
        running = {name for name, node in self.nodes.items() if node.running}
        held = {name for name in self.ports if name.removesuffix(" http") in running}
        wanted = layout.ports_needed(self.deployment)
        self.ports, _ = ports.assign(self.ports, wanted, self.deployment.first_port, keep=held)
        for name, text in layout.node_files(self.deployment, self.ports, self.folder).items():
            config = self.folder / f"{layout.file_name(name)}.toml"
            replace(config, text.encode())
            if name not in self.nodes:
                data = self.folder / "data" / layout.file_name(name)
                url = layout.url(self.ports.get(name, 0))
                self.nodes[name] = NodeProcess(
                    name, kinds[name], config, data, url, self.ports[layout.admin(name)]
                )

    def __getitem__(self, name: str) -> NodeProcess:
        return self.nodes[name]

    def start(self) -> None:
        """Those that do not run, all at once; returns when they are ready."""
        idle = [node for node in self.nodes.values() if not node.running]
        for node in idle:
            node.begin()
        for node in idle:
            node.wait_ready()

    def reload(self) -> None:
        """Every process reads its file again."""
        for node in self.nodes.values():
            if node.running:
                node.signal(signal.SIGHUP)

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Cuts these ways between regions, (from, to), and heals all others; needs `drills`."""
        Cuts(frozenset(pairs)).save(self.folder / "cuts.json")
        self.nodes[LINKS].signal(signal.SIGHUP)

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def replicas(self, region: str) -> list[NodeProcess]:
        return [self.nodes[name] for name in layout.replicas(self.deployment, region)]

    def url(self, region: str) -> str:
        """What a client of the region connects to: all its replicas."""
        return ",".join(node.url for node in self.replicas(region))

    def chain(self, region: str) -> dict[str, Any]:
        """The chain as its newest configuration that any replica knows has it; empty if none answers."""
        found: list[dict[str, Any]] = []
        for node in self.replicas(region):
            if node.running:
                try:
                    found.append(node.status()["chain"])
                except OSError:
                    continue
        return max(found, key=lambda chain: chain["epoch"], default={})

    def _serves(self, chain: dict[str, Any]) -> bool:
        tail = self.nodes[chain["tail"]]
        head = self[chain["head"]]
        shows = tail.running and bool(tail.status()["chain"]["serves"])
        return shows and head.running and bool(head.status()["chain"]["answers"])

    def wait_chain(self, region: str, members: int, patience_s: float = _PATIENCE_S) -> dict[str, Any]:
        """Until the region's chain has so many members and serves."""
        deadline = time.monotonic() + patience_s
        while True:
            chain = self.chain(region)
            if chain and len(chain["replicas"]) == members and not chain["joining"] and self._serves(chain):
                return chain
            if time.monotonic() > deadline:
                raise LocalError(f"the chain of {region!r} is still {chain}; wanted {members} members")
            time.sleep(0.05)


def make_deployment(
    regions: Mapping[str, int],
    streams: Mapping[str, Mapping[str, Any]],
    *,
    coordinators: Any = 1,
    **sections: Any,
) -> Deployment:
    """Regions by their number of replicas, streams with their `owner` and more; `coordinators` of each, 1 or
    3; `sections` as in a deployment's file."""
    tree = {
        "regions": {
            name: {"replicas": replicas, "coordinators": coordinators} for name, replicas in regions.items()
        },
        "streams": dict(streams),
        "first_port": 0,
        "logging": {"level": "warning"},
        **sections,
    }
    return msgspec.convert(tree, Deployment)


@contextmanager
def region_processes(
    regions: Mapping[str, int],
    streams: Mapping[str, Mapping[str, Any]],
    *,
    folder: Path | None = None,
    **sections: Any,
) -> Iterator[RegionProcesses]:
    """All processes of these regions, started, their chains whole; ended at the end, and the folder with them
    unless it was given."""
    place = Path(tempfile.mkdtemp(prefix="qanat-regions-")) if folder is None else folder
    processes = RegionProcesses(make_deployment(regions, streams, **sections), place)
    try:
        processes.start()
        for region, replicas in regions.items():
            processes.wait_chain(region, replicas)
        yield processes
    finally:
        processes.end()
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
