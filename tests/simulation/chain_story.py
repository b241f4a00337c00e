"""A chain in a world without faults, but for those that a test makes: for stories told step by step."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from qanat.checks.chain_checkers import rows
from qanat.checks.chain_hosts import (
    OWNED,
    ChainStudy,
    builder,
    chain_of,
    history_of,
    replicas,
)
from qanat.checks.scenarios import load_scenario
from qanat.events.batch import Batch
from qanat.events.errors import InvariantError
from qanat.kernel import Address
from qanat.protocols.chain import Answered, Chain, GiveUp, Publish, Replica
from qanat.sim import SimNode, World
from qanat.sim.faults import Cut
from qanat.sim.run import build
from qanat.sim.units import S

ONE, TWO, THREE = (Address(f"eu/proxy-{number}") for number in (1, 2, 3))
COORDINATOR = "eu/coordinator-1"
STREAM = OWNED[0]


class BrokenPromise(InvariantError):
    """A checker was not content; the arguments are its name and what it says."""

    def __init__(self, checker: str, explanation: str) -> None:
        super().__init__(f"{checker}: {explanation}")
        self.checker = checker


class Story:
    """A world without faults but those that the test makes."""

    def __init__(
        self,
        scenario_file: Path,
        chain: type[Chain] = Chain,
        *,
        session: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are the chain's, and `session` the session's, where they differ from the scenario's."""
        scenario = load_scenario(scenario_file)
        study = cast(ChainStudy, scenario.config)
        study = msgspec.structs.replace(
            study,
            chain=msgspec.structs.replace(study.chain, **settings),
            session=msgspec.structs.replace(study.session, **(session or {})),
        )
        replica = type("Told", (Replica,), {"chain_type": chain})
        kit = dataclasses.replace(scenario.kit, build=builder(replica))
        self.world: World = build(
            dataclasses.replace(scenario, config=study, kit=kit, swarm=None, workload=None, faults=()), 1
        )
        self.told: list[tuple[Address, Any]] = []
        self.world.deliver_hooks.append(self._note)
        self.world.start()
        self.world.run(1)

    def _note(self, world: World, node: SimNode, item: Any) -> None:
        self.told.append((node.address, item))

    def node(self, address: Address) -> SimNode:
        return self.world.nodes[address]

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + round(seconds * S))
        if self.world.violations:
            raise BrokenPromise(self.world.violations[0].checker, self.world.violations[0].explanation)

    def crash(self, *addresses: Address) -> None:
        for address in addresses:
            self.world.crash(self.node(address))

    def begin_alone(self, first: Address) -> None:
        """An operator says that the others will not come: this one begins the chain without them."""
        others = [node.address for node in replicas(self.world) if node.address != first]
        self.crash(*others)
        self.node(first).request(GiveUp(tuple(others)))
        self.run(2)

    def run_until(self, condition: Callable[[], bool], within_s: float = 10.0) -> None:
        deadline = self.world.now + round(within_s * S)
        while not condition():
            if self.world.now >= deadline:
                raise InvariantError(f"it did not happen within {within_s} s")
            self.run(0.0005)

    def cut(self, one: str, other: str) -> Callable[[], None]:
        """Between two sets of nodes, by pattern; the result heals it."""
        return Cut(between=((one,), (other,))).begin(self.world)

    @property
    def chain(self) -> list[Address]:
        """As the newest configuration that anybody knows has it."""
        known = [chain_of(node).configuration for node in replicas(self.world) if node.up]
        newest = max((each for each in known if each is not None), key=lambda each: each.epoch, default=None)
        return [] if newest is None else [member.at() for member in newest.replicas]

    def serves(self, length: int) -> bool:
        """Whether the chain has that length and its tail shows events."""
        return len(self.chain) == length and self.is_serving(self.chain[-1])

    def is_serving(self, address: Address) -> bool:
        node = self.node(address)
        return chain_of(node).serves(node.now_us)

    def publish(
        self, to: Address, ticket: int, source: str, position: int, count: int = 1, *, wait_s: float = 0.5
    ) -> Answered | None:
        payloads = [f"{source}:{position + at}".encode() for at in range(count)]
        batch = Batch.build(STREAM, payloads, keys=[b"k"] * count, source=source, position=position)
        self.node(to).request(Publish(ticket, batch))
        self.run(wait_s)
        return self.answer(ticket)

    def answer(self, ticket: int) -> Answered | None:
        answers = [item for _, item in self.told if isinstance(item, Answered) and item.ticket == ticket]
        return answers[0] if answers else None

    def rows(self, at: Address) -> list[bytes | None]:
        """Payloads of the stream as that replica holds it; None for what is under a tombstone."""
        history = history_of(self.node(at))
        found = rows(history, STREAM, 1, history.counter(STREAM))
        return [found[number] for number in sorted(found)]
