"""A process named so that another which later gets the same number is not taken for it."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

_POLL_S = 0.02


class ProcessId(msgspec.Struct, frozen=True):
    """A number, and when the process of that number began: numbers are used again, also after the machine
    restarted."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        return cls(pid, _began(pid) or "gone")

    def is_alive(self) -> bool:
        return _began(self.pid) == self.began

    def send(self, number: signal.Signals) -> None:
        """Signals it, if it is still there."""
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, patience_s: float) -> None:
        """Asks a process that is not our child to stop, kills it after a while, returns when it is gone."""
        self.send(signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self.send(signal.SIGKILL)
        while self.is_alive():
            time.sleep(_POLL_S)


def _began(pid: int) -> str | None:
    """A text that no other process of that number has; None if there is none, or it is dead and not yet
    buried."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return _began_by_ps(pid) if not Path("/proc/self/stat").exists() else None
    except ProcessLookupError:
        return None
    return None if fields[0] in "ZX" else f"{_boot()} {fields[19]}"


@cache
def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _began_by_ps(pid: int) -> str | None:
    """For systems without /proc."""
    said = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    stat, _, began = said.stdout.strip().partition(" ")
    return None if not stat or stat.startswith("Z") else began.strip()
