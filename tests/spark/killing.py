"""A pipeline as a user runs it, of whose processes one or another is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.spark.class_archive import quick_java
from tests.waiting import wait_until

PIPELINE = """
state = "{folder}/state"
url = "{url}"
[filters]
changes = "#op = put or #op = delete"
[sources.store]
log = "rocksdb://{folder}/store"
filters = ["changes"]
shards = "hash:2"
[[routes]]
stream = "store"
[[routes]]
stream = "users-{{shard}}"
where = "key ~ '^user/'"
[archive]
path = "{folder}/archive"
batch_ms = 0
[spark]
master = "local[1,4]"
memory = "512m"
java_options = "{java}"
folder = "{folder}"
[ingest]
read_updates = 50
batch_updates = 400
"""
"""In steps that are small enough to be killed in their middle."""


def pipeline_file(folder: Path, url: str) -> Path:
    """From a RocksDB in this folder to streams of this server and an archive."""
    file = folder / "pipeline.toml"
    file.write_text(PIPELINE.format(folder=folder, url=url, java=quick_java()))
    return file


class Found(NamedTuple):
    pid: int
    command: str


def below(pid: int) -> list[Found]:
    """All processes that this one started, and those that they started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                children.setdefault(
                    int((entry / "stat").read_text().rpartition(")")[2].split()[1]), []
                ).append(int(entry.name))
    found: list[Found] = []
    ahead = [pid]
    while ahead:
        for child in children.get(ahead.pop(), []):
            with suppress(OSError):
                command = (
                    Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                found.append(Found(child, command))
                ahead.append(child)
    return found


class PipelineProcess:
    """`qanat pipeline run FILE`. Leaving its context ends whatever is left of it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._process: subprocess.Popen[bytes] | None = None
        self._started: set[int] = set()
        self._killed: set[int] = set()

    def start(self) -> None:
        words = open(self.file.with_suffix(".err"), "ab")  # noqa: SIM115
        with words:
            command = [sys.executable, "-m", "qanat", "pipeline", "run", str(self.file)]
            self._process = subprocess.Popen(command, stdout=words, stderr=words)

    def revive(self) -> None:
        """Starts it again if it has ended, by a kill of which it could not but hear."""
        if self._process is not None and self._process.poll() is not None:
            self.gone()
            self.start()

    def said(self) -> str:
        return self.file.with_suffix(".err").read_text()[-3000:]

    def victims(self) -> dict[str, list[int]]:
        """What can be killed: by kind, the processes that there are."""
        assert self._process is not None
        found = below(self._process.pid)
        self._started |= {one.pid for one in found}
        daemons = {one.pid for one in found if "pyspark.daemon" in one.command}
        workers = {child.pid for daemon in daemons for child in below(daemon)} - self._killed
        planners = {one.pid for one in found if "python_streaming_source_runner" in one.command}
        return {
            "driver": [self._process.pid],
            "java": [one.pid for one in found if "java" in one.command.split(" ")[0]],
            "worker": sorted(workers),
            "planner": [pid for pid in sorted(planners - workers - self._killed) if _is_connected(pid)],
        }

    def kill(self, kind: str, pid: int) -> None:
        self._killed.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if kind in ("driver", "java"):
            self.gone()
            self.start()

    def gone(self) -> None:
        """Until the command has ended by itself, or was killed."""
        assert self._process is not None
        self._process.wait(120)
        # Java goes by itself when its driver is gone; and what it started goes with it.
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() and _runs(pid) for pid in self._started), 120
        )
        self._started.clear()

    def __enter__(self) -> PipelineProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._started |= {one.pid for one in below(self._process.pid)}
            self._process.kill()
            self._process.wait()
            for pid in self._started:
                with suppress(ProcessLookupError):
                    if _runs(pid):
                        os.kill(pid, signal.SIGKILL)


def _is_connected(pid: int) -> bool:
    """Java waits ten seconds for a process that is killed before it has called back; so those are spared."""
    with suppress(OSError):
        return any(os.readlink(fd).startswith("socket:") for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _runs(pid: int) -> bool:
    """Not one that has ended and that nobody has asked for; and one of ours."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return state != "Z" and (b"pyspark" in command or b"spark" in command)


def run_command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qanat", "pipeline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
