"""A real Kafka: one broker that is its own controller, topics of one partition, its own Java producer and
consumers."""

import base64
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import select
from subprocess import Popen

import numpy as np

from qanat.bench import kafka_jars
from qanat.bench.broadcast_latency import EVENT_BYTES
from qanat.bench.programs import NotThere, free_port, last_words, program
from qanat.runtime.java import NoJava, find_java

_PATIENCE_S = 120.0
_SIDES = Path(__file__).with_name("KafkaSides.java")
# What Kafka's own start script gives a broker; the warnings would be many, and are not ours to judge.
_LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_BROKER = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", _LOGGING)
_CLIENT = ("-server", "-Xmx512m", "-XX:+UseG1GC", _LOGGING)
_WARM = 3
"""Slices before the first that counts: Java compiles what it has seen often."""


def _properties(folder: Path, port: int, controller: int) -> str:
    """Besides where it is, what is in the `server.properties` that Kafka comes with."""
    return "\n".join(
        (
            "process.roles=broker,controller",
            "node.id=1",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
            f"log.dirs={folder}/data",
            "num.network.threads=3",
            "num.io.threads=8",
            "socket.send.buffer.bytes=102400",
            "socket.receive.buffer.bytes=102400",
            "offsets.topic.replication.factor=1",
            "",
        )
    )


class _Side:
    """A Java process that answers lines by lines."""

    def __init__(self, process: Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def tell(self, count: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")

    def wait(self) -> str:
        """Its next line. It writes none that nobody waits for, so none is left in our buffer."""
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select([out], [], [], _PATIENCE_S)
        line = out.readline() if ready else ""
        if not line:
            raise NotThere(f"Kafka's client gave no answer: {last_words(self._log)}")
        return line.strip()


class Broker:
    """One that runs; every measurement has a topic of its own."""

    def __init__(self, jars: Path, folder: Path, port: int) -> None:
        self._java = [str(find_java().binary)]
        self._path = ["-cp", f"{jars}/*"]
        self._folder, self._address = folder, f"127.0.0.1:{port}"
        self._topics = 0

    def command(self, *words: str) -> list[str]:
        return [*self._java, *_BROKER, *self._path, *words]

    @contextmanager
    def _side(self, role: str, topic: str, number: int) -> Iterator[_Side]:
        log = self._folder / f"{role}.log"
        compiled = ["org.codehaus.janino.SimpleCompiler", str(_SIDES), _SIDES.stem]
        words = [*self._java, *_CLIENT, *self._path, *compiled, role, self._address, topic, str(number)]
        with program(words, log, piped=True) as process:
            side = _Side(process, log)
            side.wait()
            yield side

    def topic(self) -> str:
        self._topics += 1
        name = f"t{self._topics}"
        with self._side("make", name, 0):
            return name

    @contextmanager
    def carrying(self, width: int, consumers: int, count: int) -> Iterator[Callable[[], float]]:
        """Gives what measures once: events per second that each of `consumers` receives."""
        topic = self.topic()
        with (
            self._side("consume", topic, consumers) as sinks,
            self._side("produce", topic, width) as source,
        ):

            def measure() -> float:
                os.sync()  # as for ours
                sinks.tell(count)
                source.tell(count)
                began, _, ended = source.wait(), source.wait(), sinks.wait()
                return count / ((int(ended) - int(began)) / 1e9)

            for _ in range(_WARM):
                measure()
            yield measure

    @contextmanager
    def ticking(self, count: int) -> Iterator[Callable[[], tuple[float, float]]]:
        """Gives what measures once: (p50, p99) in ms of one event per ms."""
        topic = self.topic()
        with self._side("watch", topic, 0) as sink, self._side("tick", topic, EVENT_BYTES) as source:

            def measure() -> tuple[float, float]:
                sink.tell(count)
                source.tell(count)
                delays_ms = np.array(sink.wait().split(), np.float64) / 1e6
                source.wait()
                return float(np.percentile(delays_ms, 50)), float(np.percentile(delays_ms, 99))

            for _ in range(_WARM):
                measure()
            yield measure


@contextmanager
def running() -> Iterator[Broker]:
    """A broker with its log on disk, in a folder of its own."""
    jars = kafka_jars.fetch()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qanat-kafka-")))
        port, log, file = free_port(), folder / "broker.log", folder / "server.properties"
        file.write_text(_properties(folder, port, free_port()))
        try:
            broker = Broker(jars, folder, port)
        except NoJava as error:
            raise NotThere(f"Kafka needs a Java as Spark does: {error}") from None
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        words = broker.command("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(file))
        with program(words, log) as formatting:
            if formatting.wait(_PATIENCE_S):
                raise NotThere(f"Kafka does not start here: {last_words(log)}")
        server = stack.enter_context(program(broker.command("kafka.Kafka", str(file)), log))
        try:
            broker.topic()
        except NotThere as error:
            said = error if server.poll() is None else last_words(log)
            raise NotThere(f"Kafka does not start here: {said}") from None
        yield broker
