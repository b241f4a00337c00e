"""One suite, two drivers: machines behave alike under the simulator and on real sockets."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from tests.waiting import until

from qanat.events.batch import Batch
from qanat.kernel import Address, Factory, Machine, Message
from qanat.protocols.push_sum import Estimate, PushSum, PushSumConfig, SetValue
from qanat.runtime.driver import Driver
from qanat.runtime.loop import new_loop
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import Url
from qanat.sim.world import World
from qanat.wire.control import Identity

CHANNEL = 20
DEADLINE_S = 300


class Stage(Protocol):
    """What a test needs of a driver."""

    def add(self, name: str, factory: Factory) -> None: ...
    def start(self) -> None: ...
    def request(self, name: str, request: object) -> None: ...
    def delivered(self, name: str) -> list[Any]: ...
    def crash(self, name: str) -> None: ...
    def restart(self, name: str) -> None: ...
    def until(self, condition: Callable[[], object]) -> None: ...
    def close(self) -> None: ...


class SimStage:
    def __init__(self) -> None:
        self.world = World(1)
        self.items: dict[str, list[Any]] = {}
        self.world.deliver_hooks.append(
            lambda _w, node, item: self.items.setdefault(node.address, []).append(item)
        )

    def add(self, name: str, factory: Factory) -> None:
        self.world.add(Address(name), factory)

    def start(self) -> None:
        self.world.start()
        self.world.run(self.world.now + 1)

    def request(self, name: str, request: object) -> None:
        self.world.after(0, self.world.nodes[Address(name)].request, request)

    def delivered(self, name: str) -> list[Any]:
        return self.items.get(name, [])

    def crash(self, name: str) -> None:
        self.world.crash(self.world.nodes[Address(name)])

    def restart(self, name: str) -> None:
        self.items.pop(name, None)
        self.world.nodes[Address(name)].restart()

    def until(self, condition: Callable[[], object]) -> None:
        end = self.world.now + 120_000_000
        while not condition():
            assert not self.world.violations
            assert self.world.now < end, "waited too long"
            self.world.run(self.world.now + 1_000)

    def close(self) -> None:
        pass


class SocketStage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = asyncio.Runner(loop_factory=new_loop)
        self.factories: dict[str, Factory] = {}
        self.drivers: dict[str, Driver] = {}
        self.items: dict[str, list[Any]] = {}
        self.urls: dict[str, Url] = {}

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def add(self, name: str, factory: Factory) -> None:
        self.factories[name] = factory

    def start(self) -> None:
        for name in self.factories:
            self._boot(name)

    def request(self, name: str, request: object) -> None:
        async def ask() -> None:
            self.drivers[name].request(CHANNEL, request)

        self.run(ask())

    def delivered(self, name: str) -> list[Any]:
        return self.items[name]

    def crash(self, name: str) -> None:
        """As near to a crash as one process allows: nothing is flushed, connections are cut."""

        async def cut() -> None:
            driver = self.drivers.pop(name)
            assert driver.listener is not None
            for connection in list(driver.traffic.live):
                connection.abort("closed")
            await driver.stop()

        self.run(cut())

    def restart(self, name: str) -> None:
        self._boot(name)

    def until(self, condition: Callable[[], object]) -> None:
        def holds() -> object:
            assert all(driver.failed() == {} for driver in self.drivers.values())
            return condition()

        self.run(until(holds))

    def close(self) -> None:
        for driver in self.drivers.values():
            self.run(driver.stop())
        self.runner.close()

    def _boot(self, name: str) -> None:
        async def boot() -> None:
            driver = Driver(
                Identity(name, time.time_ns()),
                self.urls.get,
                folder=self.folder / name,
                settings=TransportSettings(backoff_ms=5, backoff_limit_ms=50),
                rng=random.Random(name),
            )
            self.items[name] = []
            driver.add(CHANNEL, "machine", self.factories[name], self.items[name].append)
            url = self.urls.get(name, Url("127.0.0.1", 0))
            self.urls[name] = await driver.start(*url)
            self.drivers[name] = driver

        self.run(boot())


@pytest.fixture(params=["simulator", "sockets"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made: Stage = SimStage() if request.param == "simulator" else SocketStage(tmp_path)
    yield made
    made.close()


# ---------------------------------------------------------------------- a machine that uses every output


class Number(Message, frozen=True):
    value: int


class Load(Message, frozen=True):
    value: int
    batch: Batch


class Heard(Message, frozen=True):
    value: int


class Tell(msgspec.Struct, frozen=True):
    to: str
    first: int
    count: int
    how: str = "send"


class Probe(Machine[Number | Load | Heard, Tell]):
    message_types = (Number, Load, Heard)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.context.deliver(("saved", tuple(saved)))
        self.context.set_timer("never", 1)
        self.context.cancel_timer("never")
        self.context.set_timer("soon", 10_000_000)
        self.context.set_timer("soon", 1_000)

    def on_message(self, now_us: int, sender: Address, message: Number | Load | Heard) -> None:
        match message:
            case Number(value):
                self.context.deliver(("number", sender, value))
            case Load(value, batch):
                self.context.persist(str(value).encode())
                self.context.send(sender, Heard(value))
                self.context.deliver(("load", sender, value, batch.payload(0)))
            case Heard(value):
                self.context.deliver(("heard", sender, value))

    def on_timer(self, now_us: int, name: str) -> None:
        self.context.trace("timer", name=name)
        self.context.deliver(("timer", name))

    def on_request(self, now_us: int, request: Tell) -> None:
        to = Address(request.to)
        for i in range(request.first, request.first + request.count):
            if request.how == "cast":
                self.context.cast(to, Number(i))
            elif request.how == "load":
                self.context.send(to, Load(i, Batch.build(7, [b"payload %d" % i])))
            else:
                self.context.send(to, Number(i))

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.context.deliver(("down", peer))


def only(items: list[Any], kind: str) -> list[Any]:
    return [item for item in items if item[0] == kind]


def probes(stage: Stage, *names: str) -> None:
    for name in names:
        stage.add(name, Probe)
    stage.start()


def test_timers(stage: Stage) -> None:
    probes(stage, "a")
    stage.until(lambda: only(stage.delivered("a"), "timer"))
    assert stage.delivered("a") == [("saved", ()), ("timer", "soon")]


def test_a_channel_is_fifo_and_whole(stage: Stage) -> None:
    probes(stage, "a", "b")
    for first in range(0, 500, 100):
        stage.request("a", Tell("b", first, 100))
        stage.request("b", Tell("a", first, 100))
    stage.until(lambda: len(only(stage.delivered("b"), "number")) == 500)
    stage.until(lambda: len(only(stage.delivered("a"), "number")) == 500)
    assert only(stage.delivered("b"), "number") == [("number", "a", i) for i in range(500)]
    assert only(stage.delivered("a"), "number") == [("number", "b", i) for i in range(500)]


def test_messages_to_oneself(stage: Stage) -> None:
    probes(stage, "a")
    stage.request("a", Tell("a", 0, 3))
    stage.until(lambda: len(only(stage.delivered("a"), "number")) == 3)


def test_datagrams(stage: Stage) -> None:
    probes(stage, "a", "b")
    stage.request("a", Tell("b", 0, 20, "cast"))
    stage.until(lambda: only(stage.delivered("b"), "number"))
    assert set(only(stage.delivered("b"), "number")) <= {("number", "a", i) for i in range(20)}


def test_batches_and_records_survive_a_crash(stage: Stage) -> None:
    """What was answered was on disk before the answer left."""
    probes(stage, "a", "b")
    stage.request("a", Tell("b", 0, 10, "load"))
    stage.until(lambda: len(only(stage.delivered("a"), "heard")) == 10)
    assert only(stage.delivered("b"), "load") == [("load", "a", i, b"payload %d" % i) for i in range(10)]
    stage.crash("b")
    stage.restart("b")
    stage.until(lambda: only(stage.delivered("b"), "saved"))
    assert only(stage.delivered("b"), "saved")[-1] == ("saved", tuple(str(i).encode() for i in range(10)))


def test_a_broken_channel_is_told_and_opened_anew(stage: Stage) -> None:
    probes(stage, "a", "b")
    stage.request("a", Tell("b", 0, 1))
    stage.until(lambda: only(stage.delivered("b"), "number"))
    stage.crash("b")
    stage.request("a", Tell("b", 100, 1))
    stage.until(lambda: ("down", "b") in stage.delivered("a"))
    stage.restart("b")

    stage.until(lambda: stage.delivered("b"))

    def heard_of() -> tuple[int, int]:
        return len(only(stage.delivered("b"), "number")), len(only(stage.delivered("a"), "down"))

    for _ in range(1000):
        before = heard_of()
        if before[0]:
            break
        stage.request("a", Tell("b", 7, 1))
        stage.until(lambda: heard_of() != before)  # noqa: B023 (called before the loop goes on)
    assert only(stage.delivered("b"), "number")[0] == ("number", "a", 7)


@pytest.mark.parametrize("durable", [True, False])
def test_push_sum_finds_the_average(stage: Stage, durable: bool) -> None:
    everyone = [Address(f"n{i}") for i in range(5)]
    config = PushSumConfig(interval_ms=5, durable=durable)
    for name in everyone:
        stage.add(name, lambda context: PushSum(context, config, everyone))
    stage.start()
    for i, name in enumerate(everyone):
        stage.request(name, SetValue(10.0 * i))

    def near(item: object) -> bool:
        return isinstance(item, Estimate) and abs(item.average - 20.0) < 0.01

    stage.until(lambda: all(stage.delivered(name) and near(stage.delivered(name)[-1]) for name in everyone))
