"""The one process of a deployment that starts and watches all others. `python -m qanat.operate FOLDER`."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from qanat.coordinate.zookeeper.access import PASSWORD
from qanat.events.durable import replace
from qanat.events.errors import LocalError, QanatError
from qanat.operate.child import Child
from qanat.operate.control import ControlServer, NoSuch
from qanat.operate.cuts import Cuts
from qanat.operate.file import Deployment, decided, read
from qanat.operate.home import Home, Supervised
from qanat.operate.kinds import LINKS
from qanat.operate.layout import admin, node_files, nodes, ports_needed
from qanat.operate.overview import see
from qanat.operate.plan import compare
from qanat.operate.ports import assign
from qanat.operate.process_id import ProcessId
from qanat.runtime import logs
from qanat.runtime.loop import run

log = logging.getLogger("qanat.supervisor")

_LOCK_S = 3.0
"""Commands that look whether a folder is held hold it for an instant themselves."""
_STOP_S = 12.0
"""Time for a node to stop, above the 8 s that it gives itself."""
PAUSE_S = 3.0
"""How long a killed node stays away when nobody says otherwise: longer than a session lasts, so that it is
missed."""


class Supervisor:
    """Holds the folder, keeps the processes running, does what commands ask."""

    def __init__(self, home: Home, deployment: Deployment) -> None:
        self.home, self.deployment = home, deployment
        self.cuts = Cuts.load(home.cuts_file)
        self.children: dict[str, Child] = {}
        self._files: dict[str, str] = {}
        self._control = ControlServer(self._handle)
        self._stopping = asyncio.Event()
        self._began = time.monotonic()
        self._changing = asyncio.Lock()

    async def serve(self) -> None:
        """Until it is told to stop; then nothing of the deployment runs any more."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._write_files()
        await self._control.start()
        self.home.supervised = Supervised(ProcessId.of(os.getpid()), self._control.port, self._control.token)
        log.info("supervising", extra={"deployment": self.deployment.name, "folder": self.home.folder})
        held = set(self.home.held)
        for node in nodes(self.deployment):
            self._launch(node, held=node in held)
        await self._stopping.wait()
        self._control.close()
        await self._stop_nodes(list(self.children))
        self.home.supervised = None
        log.info("stopped")

    def stop(self) -> None:
        self._stopping.set()

    def guard(self, descriptor: int) -> None:
        """Stops everything when whoever holds the other end of this pipe is gone."""
        loop = asyncio.get_running_loop()

        def gone() -> None:
            if not os.read(descriptor, 64):
                loop.remove_reader(descriptor)
                log.info("whom this was for is gone")
                self.stop()

        loop.add_reader(descriptor, gone)

    # ------------------------------------------------------------------ processes

    def _write_files(self) -> list[str]:
        """New ports and node files; the nodes whose file is another than before."""
        running = [name for name, child in self.children.items() if child.state == "running"]
        keep = [*running, *map(admin, running)]
        if LINKS in running:  # its ports are in use by itself
            keep += [name for name in self.home.ports if ">" in name]
        ports, moved = assign(
            self.home.ports, ports_needed(self.deployment), self.deployment.first_port, keep=keep
        )
        for name in moved:
            log.warning("its port was taken, it has another now", extra={"which": name, "port": ports[name]})
        self.home.ports = ports
        before, self._files = self._files, node_files(self.deployment, ports, self.home.folder)
        changed = [node for node, text in self._files.items() if before.get(node) != text]
        for node in changed:
            replace(self.home.node_file(node), self._files[node].encode(), mode=0o600)
        for node in before:
            if node not in self._files:
                self.home.node_file(node).unlink(missing_ok=True)
        return changed

    def _launch(self, node: str, *, held: bool = False) -> None:
        kind = nodes(self.deployment)[node]
        command = [
            sys.executable,
            "-P",
            "-m",
            "qanat",
            "node",
            kind,
            "--config",
            str(self.home.node_file(node)),
        ]
        log_file, environment = self.home.node_log(node), _environment(os.environ)
        prepare = partial(self._restore_file, node)
        child = self.children[node] = Child(node, command, log_file, environment, self._remember, prepare)
        child.run(held=held)

    def _restore_file(self, node: str) -> None:
        """A node does not start with settings that nobody wrote."""
        file, text = self.home.node_file(node), self._files[node].encode()
        if not file.exists() or file.read_bytes() != text:
            log.warning("made again: it was not what was written", extra={"node": node, "file": file})
            replace(file, text, mode=0o600)

    def _remember(self) -> None:
        """Who runs, for the next supervisor: should this one be killed, it will end what is left."""
        try:
            self.home.children = {
                name: child.process for name, child in self.children.items() if child.process is not None
            }
        except OSError as error:  # a full disk is no reason to watch over nobody
            log.error("cannot write who runs", extra={"reason": str(error)})

    def _remember_held(self) -> None:
        """Who stays away, for the next supervisor: a drill is not over because this one is."""
        held = [name for name, child in self.children.items() if child.held]
        if held != self.home.held:
            self.home.held = held

    async def _stop_nodes(self, names: list[str]) -> None:
        """Replicas first: they say goodbye to their coordinator, which then need not wait for their sessions
        to end."""
        replicas = [name for name in names if "/proxy-" in name]
        for group in (replicas, [name for name in names if name not in replicas]):
            await asyncio.gather(*(self.children[name].stop(_STOP_S) for name in group))
        for name in names:
            del self.children[name]
        self._remember()

    # ------------------------------------------------------------------ requests

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("do"):
            case "status":
                return self.status()
            case "kill":
                return self._kill(request["node"], request.get("pause_s", PAUSE_S))
            case "start":
                self._child(request["node"]).start()
                self._remember_held()
                return {}
            case "restart":
                self._child(request["node"]).restart()
                return {}
            case "cuts":
                return self._change_cuts(request)
            case "apply":
                async with self._changing:
                    return await self._apply(read_text(self.home, request["deployment"]))
            case "stop":
                self.stop()
                return {}
        raise LocalError(
            f"the supervisor does not know how to {request.get('do')!r}; it may be of another version"
        )

    def status(self) -> dict[str, Any]:
        ports = self.home.ports
        kinds = nodes(self.deployment)
        return {
            "name": self.deployment.name,
            "folder": str(self.home.folder),
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._began, 3),
            "drills": self.deployment.drills,
            "cuts": sorted(self.cuts.pairs),
            "nodes": {
                name: {
                    "kind": kinds.get(name, ""),
                    "state": child.state,
                    "pid": child.process.pid if child.process else 0,
                    "starts": child.starts,
                    "last_end": child.last_end,
                    "port": ports.get(name, 0),
                    "http": ports.get(admin(name), 0),
                }
                for name, child in self.children.items()
            },
        }

    def _child(self, node: str) -> Child:
        child = self.children.get(node)
        if child is None:
            raise NoSuch(f"there is no node {node!r}; there are {', '.join(self.children)}")
        return child

    def _kill(self, node: str, pause_s: float | None) -> dict[str, Any]:
        child = self._child(node)
        was_running = child.kill(pause_s)
        self._remember_held()
        if not was_running:
            if pause_s is None:
                return {"was": child.state}
            raise LocalError(f"{node} does not run now: {child.last_end or 'it is about to start'}")
        return {"was": "running"}

    def _change_cuts(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.deployment.drills:
            raise LocalError(
                "links of this deployment cannot be cut; set drills = true in its file, then down and up"
            )
        for a, b in request["pairs"]:
            for region in (a, b):
                if region not in self.deployment.regions:
                    known = ", ".join(self.deployment.regions)
                    raise NoSuch(f"there is no region {region!r}; there are {known}")
            if a == b:
                raise NoSuch(f"a link is between two regions, not {a} and itself")
        pairs = {(a, b) for a, b in request["pairs"]}
        before = self.cuts.pairs
        self.cuts = self.cuts.cut(pairs) if request["cut"] else self.cuts.heal(pairs or None)
        self.cuts.save(self.home.cuts_file)
        self._child(LINKS).signal(signal.SIGHUP)
        return {"cuts": sorted(self.cuts.pairs), "healed": sorted(before - self.cuts.pairs)}

    async def _apply(self, new: Deployment) -> dict[str, Any]:
        overview = await see(self.status())
        new = decided(new, self.deployment)
        plan = compare(self.deployment, new, self.home.owners, overview.chains())
        plan.check()
        self.deployment = self.home.deployment = new
        self.cuts = self.cuts.among(new.regions)
        self.cuts.save(self.home.cuts_file)
        changed = self._write_files()
        for node in plan.started:
            self._launch(node)
        # Before the others hear that their chain shall be shorter: who leaves by itself holds no lease to
        # wait for.
        await self._stop_nodes(plan.stopped)
        for node in changed:
            if node not in plan.started and node in self.children:
                self.children[node].signal(signal.SIGHUP)
        log.info("applied", extra={"changes": len(plan.words)})
        return {"done": plan.words, "restart": plan.restarted}


def read_text(home: Home, text: str) -> Deployment:
    """A deployment that came as text, read as a file is."""
    path = home.folder / ".new-deployment.toml"
    path.write_text(text, encoding="utf-8")
    try:
        return read(path)
    finally:
        path.unlink()


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without settings of the one who typed `up`: a node has its file, and nothing else decides. The password
    is no setting, for it stands in no file."""
    return {
        name: value
        for name, value in environment.items()
        if name == PASSWORD or not name.startswith("QANAT_")
    }


async def _supervise(home: Home, guarded: bool) -> None:
    deadline = time.monotonic() + _LOCK_S
    while (held := home.lock()) is None:
        if time.monotonic() > deadline:
            raise LocalError(f"another supervisor holds {home.folder}")
        await asyncio.sleep(0.05)
    try:
        home.mend()
        deployment = home.deployment
        if deployment is None:
            raise LocalError(f"there is no deployment.toml in {home.folder}")
        for name, process in home.children.items():
            if process.is_alive():
                log.warning(
                    "ending what a supervisor before left behind", extra={"node": name, "pid": process.pid}
                )
                await asyncio.to_thread(process.end, _STOP_S)
        supervisor = Supervisor(home, deployment)
        if guarded:
            supervisor.guard(sys.stdin.fileno())
        await supervisor.serve()
        if guarded:
            home.wipe()
    finally:
        os.close(held)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument(
        "--guarded", action="store_true", help="stop when standard input ends, and remove the folder"
    )
    args = parser.parse_args()
    logs.set_up()
    try:
        run(lambda: _supervise(Home(args.folder), args.guarded))
    except QanatError as error:
        log.error("not supervising", extra={"reason": str(error)})
        return 1
    return 0
