"""Harsher faults for the game of `drilling`: two processes at once, processes that stand still, disks that are full, and files that
are damaged while nobody runs."""

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

from tests.integration.drilling import ClientProcess, Drills
from tests.waiting import wait_until

from qanat.nodes.deployment.control import call
from qanat.nodes.deployment.home import Home
from qanat.nodes.deployment.layout import region_of
from qanat.nodes.deployment.overview import look
from qanat.studies.drill_clients import DELIVERIES

STILL_S = (0.3, 4.0)
"""How long a process stands still: shorter and longer than its session."""
FULL_S = (0.5, 3.0)
OLDER_BYTES = 1 << 20
"""Files up to this size are kept as they were, to be put back later."""
NEVER_BACK = "lock"
FREE = resource.RLIM_INFINITY


class Harms(Drills):
    """One machine of a region at a time has a damaged disk, and the deployment is whole before it is damaged: the others have
    everything. Everything else may overlap."""

    def __init__(self, home: Home, clients: dict[str, ClientProcess], rng: random.Random) -> None:
        super().__init__(home, clients, rng)
        self.damaged = 0
        self._lasting: list[tuple[float, Callable[[], None]]] = []
        self._older: dict[Path, bytes] = {}

    def step(self) -> None:
        self._end_lasting(time.monotonic())
        super().step()

    def end(self) -> None:
        self._end_lasting(float("inf"))
        super().end()

    def harm(self, victim: str) -> bool:
        if victim in self._clients:
            if self._rng.random() < 0.5:
                return super().harm(victim)
            return self._stand_still(victim, self._clients[victim].pid)
        if "/" not in victim:  # the process of links has no region, nor anything on disk
            return super().harm(victim)
        chosen = self._rng.choices(("kill", "pair", "still", "full", "damage"), (3, 2, 2, 2, 3))[0]
        match chosen:
            case "pair":
                return self._pair(region_of(victim))
            case "still" | "full":
                pid = self._pid(victim)
                if not pid:
                    return False
                return self._stand_still(victim, pid) if chosen == "still" else self._fill(victim, pid)
            case "damage" if not look(self._home).missing():
                return self._damage(victim)
        return super().harm(victim)

    def prove(self, folder: Path) -> None:
        """Audits what all subscribers were given."""
        urls, streams = look(self._home).urls(), sorted(look(self._home).streams())
        archive = folder / "archive"
        _qanat("archive", "run", str(archive), *streams, "--url", next(iter(urls.values())), "--until-end")
        _qanat("audit", str(folder / DELIVERIES), "--archive", str(archive), "--complete")

    # Faults

    def _pair(self, region: str) -> bool:
        overview = look(self._home)
        head, ensemble = overview.chain(region).head, overview.ensembles().get(region, {})
        decides = next((name for name, said in ensemble.items() if said["role"] == "leader"), "")
        both = [each for each in (head, decides) if each]
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
