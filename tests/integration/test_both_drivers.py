"""The sample protocol, unchanged, under the simulator and on real sockets: both lose and double its
datagrams, a node dies and comes back, and the promises are the same.

(The kernel's contract itself, output by output, is compared in test_runtime_both_drivers.py.)
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.waiting import until

from qanat.kernel import Address, Context, Message
from qanat.protocols.push_sum import VALUE_UNITS, WEIGHT_UNITS, Account, PushSum, PushSumConfig, SetValue
from qanat.runtime.driver import Driver
from qanat.runtime.loop import new_loop
from qanat.runtime.url import Url
from qanat.sim import Links, LinkSpec, World
from qanat.wire.control import Identity

EVERYONE = tuple(Address(f"n{number}") for number in range(5))
VALUES = (10.0, 20.0, 30.0, 40.0, -50.0)
CONFIG = PushSumConfig(interval_ms=5)
LOSS = 0.2
CHANNEL = 20
Machines = dict[Address, PushSum]
NOTHING = Account()


def unbalanced(machines: Machines) -> tuple[int, int]:
    """Units of value and of weight too many in the whole world: held, given and not taken, owed."""
    value = weight = 0
    for address, machine in machines.items():
        value += machine.portion - machine.own
        weight += machine.weight - WEIGHT_UNITS
        for peer, given in machine.given.items():
            taken = machines[peer].taken.get(address, NOTHING)
            value += given.value - taken.value
            weight += given.weight - taken.weight
    return value % 2**63, weight % 2**63


def converged(machines: Machines) -> bool:
    if any(machine.own != round(value * VALUE_UNITS) for machine, value in zip(machines.values(), VALUES)):
        return False
    truth = sum(VALUES) / len(VALUES)
    return all(abs(machine.average - truth) < 1e-3 for machine in machines.values())


class Lossy:
    """A context whose datagrams are lost and doubled, for a loopback that never does."""

    def __init__(self, inner: Context) -> None:
        self._inner = inner
        self._dice = random.Random(str(inner.address))
        self.address, self.rng, self.wall_us = inner.address, inner.rng, inner.wall_us
        self.when_persisted = inner.when_persisted
        self.send, self.set_timer, self.cancel_timer = inner.send, inner.set_timer, inner.cancel_timer
        self.persist, self.deliver, self.trace = inner.persist, inner.deliver, inner.trace

    def cast(self, to: Address, message: Message) -> None:
        roll = self._dice.random()
        for _ in range(0 if roll < LOSS else 2 if roll > 0.9 else 1):
            self._inner.cast(to, message)


def under_the_simulator(folder: Path) -> Machines:
    machines: Machines = {}

    def factory(context: Context) -> PushSum:
        machines[context.address] = PushSum(context, CONFIG, EVERYONE)
        return machines[context.address]

    world = World(1, links=Links(LinkSpec(latency_ms=0.5, loss=LOSS, duplicate=0.1)))
    for address in EVERYONE:
        world.add(address, factory)
    world.start()
    for address, value in zip(EVERYONE, VALUES):
        world.at(1, world.nodes[address].request, SetValue(value))
    world.run(100_000)
    world.crash(world.nodes[EVERYONE[0]])
    world.after(100_000, world.nodes[EVERYONE[0]].restart)
    while not (world.now > 300_000 and converged(machines)):
        world.run(world.now + 10_000)
        assert world.violations == []
        assert world.now < 60_000_000, "waited too long"
    return machines


def on_sockets(folder: Path) -> Machines:
    machines: Machines = {}
    drivers: dict[Address, Driver] = {}
    urls: dict[str, Url] = {}

    def factory(context: Context) -> PushSum:
        machines[context.address] = PushSum(Lossy(context), CONFIG, EVERYONE)
        return machines[context.address]

    async def boot(address: Address) -> None:
        driver = drivers[address] = Driver(
            Identity(address, time.time_ns()), urls.get, folder=folder / address
        )
        driver.add(CHANNEL, "push-sum", factory)
        urls[address] = await driver.start(*urls.get(address, Url("127.0.0.1", 0)))

    async def all_well_until(condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            assert all(driver.failed() == {} for driver in drivers.values())
            return condition()

        await until(holds)

    async def play() -> None:
        for address in EVERYONE:
            await boot(address)
        for address, value in zip(EVERYONE, VALUES):
            drivers[address].request(CHANNEL, SetValue(value))
        dead = EVERYONE[0]
        await all_well_until(lambda: len(machines[dead].taken) > 1)
        await drivers.pop(dead).stop()
        rounds = machines[EVERYONE[1]]
        seen = sum(account.number for account in rounds.given.values())
        await all_well_until(lambda: sum(account.number for account in rounds.given.values()) > seen + 5)
        await boot(dead)
        await all_well_until(lambda: converged(machines))
        for driver in drivers.values():
            await driver.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())
    return machines


@pytest.mark.parametrize("driver", [under_the_simulator, on_sockets])
def test_push_sum_conserves_mass_and_converges(driver: Callable[[Path], Machines], tmp_path: Path) -> None:
    machines = driver(tmp_path)
    assert sorted(machines) == sorted(EVERYONE)
    assert unbalanced(machines) == (0, 0)


@pytest.mark.parametrize("driver", [under_the_simulator, on_sockets])
def test_what_was_lost_was_repaired(driver: Callable[[Path], Machines], tmp_path: Path) -> None:
    """Gifts are numbered: in spite of losses, what each took is close behind what the others gave."""
    machines = driver(tmp_path)
    behind: Sequence[int] = [
        given.number - machines[peer].taken.get(address, NOTHING).number
        for address, machine in machines.items()
        for peer, given in machine.given.items()
    ]
    assert min(behind) >= 0
    assert sum(behind) < sum(
        given.number for machine in machines.values() for given in machine.given.values()
    )
