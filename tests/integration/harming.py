"""Harsher faults for the game of `drilling`: two processes at once, processes that stand still, disks that
are full, clocks that are an hour off, and files that are damaged while nobody runs."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.integration.clocks import HOUR_S, Clocks
from tests.integration.drilling import DEADLINE_S, ClientProcess, Drills
from tests.waiting import wait_until

from qanat.operate.control import call
from qanat.operate.home import Home
from qanat.operate.layout import coordinator, region_of
from qanat.operate.operations import wait_until_serving
from qanat.operate.overview import Overview, look
from qanat_workshop.drill_clients import DELIVERIES

STILL_S = (0.3, 4.0)
"""How long a process stands still: shorter and longer than its session."""
FULL_S = (0.5, 3.0)
OLDER_BYTES = 1 << 20
"""Files up to this size are kept as they were, to be put back later."""
NEVER_BACK = "lock"
FREE = resource.RLIM_INFINITY
ROLES = ("head", "middle", "tail", "coordinator")
"""Of a chain of three; the first three in the order of the chain."""


class Harms(Drills):
    """One machine at a time has a damaged disk, and the deployment is whole before it is damaged: the others
    have everything. Everything else may overlap."""

    def __init__(
        self, clocks: Clocks, home: Home, clients: dict[str, ClientProcess], rng: random.Random
    ) -> None:
        super().__init__(home, clients, rng)
        self.damaged = 0
        self._clocks = clocks
        self._lasting: list[tuple[float, Callable[[], None]]] = []
        self._older: dict[Path, bytes] = {}

    def step(self) -> None:
        self._end_lasting(time.monotonic())
        super().step()

    def end(self) -> None:
        """Chance may have left somebody out. So each stands still, has a full disk, and is damaged once for
        certain, in its role."""
        for role in ROLES:
            for harm in (self._stand_still, self._fill):
                name = self._in_role(role)
                harm(name, self._pid(name))
                while self._lasting:
                    time.sleep(0.05)  # as long as that fault lasts
                    self._end_lasting(time.monotonic())
            self._damage(self._in_role(role))
        self._recover()

    def _recover(self) -> None:
        self._end_lasting(float("inf"))
        self._healing = 0
        super().end()
        wait_until_serving(self._home, patience_s=DEADLINE_S)

    def _in_role(self, role: str) -> str:
        """Who has that role in the region whose chain is the longest, while all is well."""
        self._recover()
        overview = look(self._home)
        region = max(overview.regions(), key=lambda each: len(overview.regions()[each]))
        if role == "coordinator":
            return _leader(overview, region) or coordinator(region)
        return overview.chain(region).replicas[ROLES.index(role)]

    def harm(self, victim: str) -> bool:
        if victim in self._clients:
            match self._rng.choice(("kill", "still", "clock")):
                case "still":
                    return self._stand_still(victim, self._clients[victim].pid)
                case "clock":
                    return self._set_clock(victim)
            return super().harm(victim)
        if "/" not in victim:  # the process of links has no region, nor anything on disk
            pid = self._pid(victim)
            return (
                self._stand_still(victim, pid) if pid and self._rng.random() < 0.5 else super().harm(victim)
            )
        chosen = self._rng.choices(("kill", "pair", "still", "full", "damage", "clock"), (3, 2, 2, 2, 1, 2))[
            0
        ]
        match chosen:
            case "clock":
                return self._set_clock(victim)
            case "pair":
                return self._pair(region_of(victim))
            case "still" | "full":
                pid = self._pid(victim)
                if not pid:
                    return False
                return self._stand_still(victim, pid) if chosen == "still" else self._fill(victim, pid)
            case "damage":
                self._recover()
                return self._damage(victim)
        return super().harm(victim)

    def prove(self, folder: Path) -> None:
        """Audits what all subscribers were given."""
        assert self.damaged >= len(ROLES), f"only {self.damaged} files were damaged"
        urls, streams = look(self._home).urls(), sorted(look(self._home).streams())
        archive = folder / "archive"
        _qanat("archive", "run", str(archive), *streams, "--url", next(iter(urls.values())), "--until-end")
        _qanat("audit", str(folder / DELIVERIES), "--archive", str(archive), "--complete")

    # Faults

    def _pair(self, region: str) -> bool:
        overview = look(self._home)
        replicas = overview.chain(region).replicas
        one = self._rng.choice(replicas) if replicas else ""
        both = [each for each in (one, _leader(overview, region)) if each]
        done = [self._do(f"kill {each} (of a pair)", "kill", node=each, pause_s=0.0) for each in both]
        return any(done)

    def _stand_still(self, name: str, pid: int) -> bool:
        if not _signal(pid, signal.SIGSTOP):
            return False
        self._tell(f"stop {name}")
        self._last(STILL_S, lambda: _signal(pid, signal.SIGCONT))
        return True

    def _fill(self, name: str, pid: int) -> bool:
        if not _limit_files(pid, 1):
            return False
        self._tell(f"fill the disk of {name}")
        self._last(FULL_S, lambda: _limit_files(pid, FREE))
        return True

    def _set_clock(self, name: str) -> bool:
        """It stays wrong until it is set another time, also over the end and the proof. Half of them begin
        with it, the others see it jump."""
        ahead_s = self._rng.choice((-HOUR_S, 0, HOUR_S))
        self._clocks.set(name, ahead_s)
        self._tell(f"set the clock of {name}: {ahead_s:+d} s")
        return self._rng.random() < 0.5 or super().harm(name)

    def _damage(self, node: str) -> bool:
        if not self._do(f"kill {node} to damage it", "kill", node=node, pause_s=None):
            return False
        wait_until(lambda: call(self._home, "status")["nodes"][node]["state"] == "held")
        folder = self._home.folder / "data" / node.replace("/", "~")
        shutil.rmtree(folder / "set-aside", ignore_errors=True)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NEVER_BACK)
        if files:
            victim = self._rng.choice(files)
            how = self._rng.choice(("flip", "cut", "remove", "older"))
            self._tell(f"damage {victim.relative_to(folder)} of {node}: {how}")
            self._older |= damage(victim, how, self._rng, self._older)
            for path in files:
                if path.exists() and path.stat().st_size <= OLDER_BYTES and path not in self._older:
                    self._older[path] = path.read_bytes()
            self.damaged += 1
        return self._do(f"start {node}", "start", node=node)

    def _pid(self, node: str) -> int:
        return int(call(self._home, "status")["nodes"][node]["pid"])

    def _last(self, seconds: tuple[float, float], over: Callable[[], object]) -> None:
        self._lasting.append((time.monotonic() + self._rng.uniform(*seconds), lambda: void(over())))

    def _end_lasting(self, now: float) -> None:
        for each in [each for each in self._lasting if each[0] <= now]:
            self._lasting.remove(each)
            each[1]()


def _leader(overview: Overview, region: str) -> str:
    """Of a coordinator of three; empty where nobody says that it leads."""
    ensemble = overview.ensembles().get(region, {})
    return next((name for name, said in ensemble.items() if said["role"] == "leader"), "")


def void(_: object) -> None:
    """Its value says nothing."""


def damage(path: Path, how: str, rng: random.Random, older: dict[Path, bytes]) -> dict[Path, bytes]:
    """Returns what the file held, to be put back another time."""
    content = path.read_bytes()
    match how:
        case "remove":
            path.unlink()
        case "cut":
            os.truncate(path, rng.randrange(len(content)) if content else 0)
        case "older" if path in older:
            path.write_bytes(older[path])
        case _ if content:
            at = rng.randrange(len(content))
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
    return {path: content} if len(content) <= OLDER_BYTES else {}


def _signal(pid: int, number: signal.Signals) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _limit_files(pid: int, size: int) -> bool:
    """Lets no file of the process grow; the kernel answers as for a full disk."""
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, FREE))
        return True
    return False


def _qanat(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "qanat", *words], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, f"qanat {' '.join(words)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
