"""A real Spark cluster on this machine: a standalone master and workers from the wheel, as processes that can be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pyspark
from tests.spark.conftest import QUICK_JAVA
from tests.waiting import wait_until

from qanat.runtime.java import find_java

SPARK_HOME = Path(pyspark.__file__).parent
DEADLINE_S = 90.0
"""For a Java process to start and say so, on a busy machine."""


def environment(**more: str) -> dict[str, str]:
    """What Spark's scripts and its Python workers need; Javas of tests are compiled simply and stay small."""
    return os.environ | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **more,
    }


class Daemon:
    """A process of Spark's own in a process group of its own: with it die its executors and their Pythons."""

    def __init__(self, name: str, folder: Path, words: Sequence[str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._file: IO[bytes] = self.log.open("wb")
        self._process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *words],
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=environment(SPARK_WORKER_DIR=str(folder / name)),
            cwd=folder,
            start_new_session=True,
        )

    def said(self, pattern: str) -> re.Match[str] | None:
        found = re.search(pattern, self.log.read_text(errors="replace"))
        if found is None and self._process.poll() is not None:
            raise AssertionError(f"{self.name} ended: {self.tail()}")
        return found

    def wait_for(self, pattern: str) -> str:
        """The first group of what it says, as soon as it does."""
        wait_until(lambda: self.said(pattern), DEADLINE_S, every_s=0.05, say=self.tail)
        found = self.said(pattern)
        assert found is not None
        return found.group(1)

    def tail(self) -> str:
        return f"{self.name} said: {self.log.read_text(errors='replace')[-2000:]}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """As if its machine lost power."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._file.close()


class Cluster:
    """One master and some workers with one core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.workers: list[Daemon] = []
        self._started = 0
        words = [
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        self.master = Daemon("master", folder, words)
        try:
            self.url = self.master.wait_for(r"Starting Spark master at (spark://[\d.]+:\d+)")
            for _ in range(workers):
                self.add_worker()
            for worker in self.workers:
                worker.wait_for(r"(Successfully registered with master)")
        except BaseException:
            self.end()
            raise

    def add_worker(self) -> Daemon:
        self._started += 1
        words = [
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        # Memory is only counted, not taken: enough for two applications' executors at once.
        words += ["--cores", "1", "--memory", "16g", self.url]
        worker = Daemon(f"worker-{self._started}", self.folder, words)
        self.workers.append(worker)
        return worker

    def mend(self, workers: int = 2) -> None:
        """As many workers as at first, whatever a test did to them."""
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.workers) < workers:
            self.add_worker().wait_for(r"(Successfully registered with master)")

    def executor_of(self, worker: Daemon) -> bool:
        """Whether it has started an executor for some application."""
        return any((self.folder / worker.name).glob("app-*/*/stderr"))

    def end(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.kill()

    # What runs there

    def qanat(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """A command of ours whose driver is a process of its own, with this cluster as its master."""
        return self._start([sys.executable, "-m", "qanat", *words], {"QANAT_MASTER": self.url, **more})

    def submit(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """`spark-submit` with these words."""
        return self._start([str(SPARK_HOME / "bin" / "spark-submit"), *words], more)

    def _start(self, command: list[str], more: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**more),
            start_new_session=True,
        )


def finished(process: subprocess.Popen[str], timeout_s: float = 110) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); a process that takes too long is killed with all it started."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"took more than {timeout_s} s; it said {out[-1000:]} {err[-3000:]}") from None
    return process.returncode, out, err
