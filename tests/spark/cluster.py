"""A real Spark cluster on this machine: a standalone master and workers from the wheel, as processes that can
be killed."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pyspark
from tests.spark.class_archive import quick_java
from tests.spark.submit_lines import CHECKOUT
from tests.waiting import wait_until

from qanat.runtime.java import find_java

SPARK_HOME = Path(pyspark.__file__).parent
DEADLINE_S = 300
"""For a Java process to start and say so, on a busy machine."""


def environment(**more: str) -> dict[str, str]:
    """What Spark's scripts and its Python workers need; Javas of tests are compiled simply and stay small."""
    return os.environ | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": quick_java(),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **more,
    }


DEFAULTS = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "500ms",
    "spark.speculation.task.duration.threshold": "5s",
    "spark.speculation.multiplier": "20",
}
"""Of applications in tests: each leaves room for another one; a task that hangs is run twice at once."""


def defaults(folder: Path) -> Path:
    """A folder with these settings, as Spark's own scripts read them."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in DEFAULTS.items()))
    return conf


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
    """One master and some workers; an application gets a core of each, and there is room for two
    applications."""

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
            f"127.0.0.{self._started}",  # for Spark every address is a machine
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        # Cores and memory are only counted, not taken.
        words += ["--cores", "2", "--memory", "16g", self.url]
        worker = Daemon(f"worker-{self._started}", self.folder, words)
        self.workers.append(worker)
        return worker

    def mend(self, workers: int = 2) -> None:
        """As many workers as at first, whatever a test did to them."""
        self.workers = [worker for worker in self.workers if worker.alive]
        while len(self.workers) < workers:
            self.add_worker().wait_for(r"(Successfully registered with master)")

    def fate(self, tasks: int = 2) -> Fate:
        """To be asked for before a command begins: who is to die during it."""
        return Fate(self, tasks)

    def tasks_begun(self, worker: Daemon) -> int:
        """By its executors, as they write down."""
        logs = (self.folder / worker.name).glob("app-*/*/stderr")
        return sum(log.read_text(errors="replace").count(": Running task ") for log in logs)

    def end(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.kill()


class Fate:
    """The death of a worker in the middle of a job: of the first one that has begun so many tasks of it."""

    def __init__(self, cluster: Cluster, tasks: int) -> None:
        self._cluster = cluster
        self._at = {worker: cluster.tasks_begun(worker) + tasks for worker in cluster.workers}

    def strike(self, command: Command, when: Callable[[], object] = lambda: True) -> None:
        """As soon as that holds, too."""
        wait_until(lambda: self._busy() and when(), DEADLINE_S, every_s=0.02, say=command.words)
        self._busy()[0].kill()
        assert not command.ended, "the command was too quick for it"

    def _busy(self) -> list[Daemon]:
        return [worker for worker, at in self._at.items() if self._cluster.tasks_begun(worker) >= at]


class Driver:
    """A process of ours that uses the cluster: the first command opens a session there, and the others share
    it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder = cluster.folder
        self._count = 0
        program = Path(__file__).with_name("cluster_driver.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), json.dumps(DEFAULTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # with a folder of settings of its own Java would refuse the archive of classes
            env=environment(),
            start_new_session=True,
        )

    def start(self, *words: str) -> Command:
        """Begins a command, or one of the driver's own jobs; it must end before the next one begins."""
        self._count += 1
        command = Command(self._process, self._folder / f"command-{self._count}", words)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command.request) + "\n")
        self._process.stdin.flush()
        return command

    def run(self, *words: str) -> str:
        """What a command prints; it must succeed."""
        command = self.start(*words)
        assert command.code() == 0, command.err.read_text()
        return command.out.read_text()

    def end(self) -> None:
        """Java ends with it, since it reads from a pipe of the driver's."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class Command:
    """A command that the driver runs."""

    def __init__(self, process: subprocess.Popen[str], path: Path, words: Sequence[str]) -> None:
        self._process = process
        self.out, self.err = path.with_suffix(".out"), path.with_suffix(".err")
        self.out.touch()
        self.request = {"words": list(words), "out": str(self.out), "err": str(self.err)}
        self._code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether its exit code is there to be read."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def code(self) -> int:
        """Its exit code, when it has ended."""
        if self._code is None:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            assert line, "the driver died"
            self._code = int(json.loads(line)["code"])
        return self._code

    def words(self) -> str:
        return f"{self.request['words']} said {self.out.read_text()[-1500:]} {_read(self.err)[-1500:]}"


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def submit(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """`spark-submit` with these words, to its end."""
    return subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-submit"), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(SPARK_CONF_DIR=str(defaults(cluster.folder))),
        cwd=CHECKOUT,
        timeout=300,
        check=False,
    )
