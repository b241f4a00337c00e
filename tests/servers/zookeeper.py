"""A real ensemble of ZooKeeper servers on free ports, each a process that can be killed. Their classes are in
PySpark's jars."""

from __future__ import annotations

import importlib.util
import random
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.servers.certificates import Certificate
from tests.waiting import wait_until

from qanat.runtime.java import find_java

TICK_MS = 500
JARS = ("zookeeper-", "slf4j-api", "metrics-core", "snappy-java", "netty-", "commons-io", "commons-cli")
"""All that a server needs, without a logger: it says nothing, and starts in half the time."""
JAVA = (
    "-Xmx96m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:CICompilerCount=1",
    "-Xshare:auto",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.forceSync=no",  # of disks that lie there are tests elsewhere
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=64",
    "-Djava.net.preferIPv4Stack=true",
)


def _with_parent() -> list[str]:
    """Whatever becomes of the tests, no server outlives them."""
    program = shutil.which("setpriv")
    return [] if program is None else [program, "--pdeathsig", "KILL", "--"]


def _free_ports(count: int) -> list[int]:
    """Below those that the kernel gives to whoever dials: a server that is away must find its own again, and
    nobody there in its stead."""
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            each = socket.socket()
            try:
                each.bind(("127.0.0.1", random.randrange(12_000, 32_000)))
                held.append(each)
            except OSError:
                each.close()
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()


def _classpath() -> str:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    return ":".join(str(jar) for jar in jars if jar.name.startswith(JARS))


class Tls(NamedTuple):
    """The server's own, and who must have signed its clients' certificates."""

    server: Certificate
    authority: Certificate


class ZooKeeperServer:
    def __init__(
        self, folder: Path, number: int, port: int, members: str, secure_port: int = 0, tls: Tls | None = None
    ) -> None:
        self.number, self.port, self.secure_port, self._folder = number, port, secure_port, folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        (folder / "myid").write_text(str(number), encoding="utf-8")
        self._config = folder / "zoo.cfg"
        self._config.write_text(
            f"tickTime={TICK_MS}\ninitLimit=40\nsyncLimit=6\nmaxSessionTimeout=200000\ndataDir={folder}\nclientPort={port}\n"
            f"clientPortAddress=127.0.0.1\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n{members}"
            f"{'' if tls is None else self._encrypted(tls)}",
            encoding="utf-8",
        )

    def _encrypted(self, tls: Tls) -> str:
        """On a port of its own, for those alone who have a certificate."""
        both = self._folder / "both.pem"
        both.write_text(
            tls.server.key.read_text(encoding="utf-8") + tls.server.cert.read_text(encoding="utf-8"),
            encoding="utf-8",
        )
        return (
            f"secureClientPort={self.secure_port}\nsecureClientPortAddress=127.0.0.1\nssl.clientAuth=need\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={both}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={tls.authority.cert}\nssl.trustStore.type=PEM\n"
        )

    def start(self) -> None:
        """From the main thread: with the thread that started it, it would end."""
        assert threading.current_thread() is threading.main_thread()
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *_with_parent(),
                    str(find_java().binary),
                    *JAVA,
                    "-cp",
                    _classpath(),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(self._config),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def role(self) -> str:
        """`leader`, `follower`, or nothing while it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked:
                asked.sendall(b"srvr")
                said = b""
                while more := asked.recv(4096):
                    said += more
        except OSError:
            return ""
        lines = dict(line.split(": ", 1) for line in said.decode().splitlines() if ": " in line)
        return lines.get("Mode", "")

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        return (self._folder / "output").read_text(encoding="utf-8")[-3000:]


class Ensemble:
    def __init__(self, folder: Path, size: int = 3, tls: Tls | None = None) -> None:
        ports = _free_ports(4 * size)
        clients, peers, votes, secure = (ports[at * size : (at + 1) * size] for at in range(4))
        members = "".join(
            f"server.{number}=127.0.0.1:{peers[number - 1]}:{votes[number - 1]}\n"
            for number in range(1, size + 1)
        )
        self.servers = [
            ZooKeeperServer(
                folder / f"zookeeper-{number}",
                number,
                clients[number - 1],
                members,
                secure[number - 1],
                tls,
            )
            for number in range(1, size + 1)
        ]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def url(self, root: str = "") -> str:
        return f"zookeeper://{self.hosts}/{root}"

    def secure_url(self, root: str = "") -> str:
        """By the ports with TLS, if it has them."""
        return f"zookeeper://{','.join(f'127.0.0.1:{server.secure_port}' for server in self.servers)}/{root}"

    def start(self) -> None:
        """All that do not run."""
        for server in self.servers:
            if not server.runs():
                server.start()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def wait(self, servers: int | None = None) -> None:
        """Until so many of them serve."""
        wanted = len(self.servers) if servers is None else servers
        wait_until(
            lambda: sum(bool(server.role()) for server in self.servers) >= wanted,
            every_s=0.05,
            say=self.output,
        )

    def leader(self) -> ZooKeeperServer:
        found: list[ZooKeeperServer] = []

        def there() -> bool:
            found[:] = [server for server in self.servers if server.role() == "leader"]
            return len(found) == 1

        wait_until(there, every_s=0.05, say=self.output)
        return found[0]

    def output(self) -> str:
        return "\n".join(server.output() for server in self.servers)


@contextmanager
def zookeeper_ensemble(folder: Path, size: int = 3, tls: Tls | None = None) -> Iterator[Ensemble]:
    """One that serves."""
    ensemble = Ensemble(folder, size, tls)
    try:
        ensemble.start()
        ensemble.wait()
        yield ensemble
    finally:
        ensemble.kill()
