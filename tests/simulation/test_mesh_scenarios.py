"""The region's mesh keeps its promises under every scenario of its own; and broken versions are caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, planted

from qanat.bench.mesh_speed import measure
from qanat.checks.mesh import MeshStudyConfig, StudyProxy, factory
from qanat.checks.scenarios import load_scenario
from qanat.events.batch import Batch
from qanat.kernel import Address, Factory
from qanat.protocols.mesh import MeshClient
from qanat.protocols.mesh.buffer import Held, ReceiveBuffer
from qanat.protocols.mesh.incoming import Incoming
from qanat.sim import Place
from qanat.sim.faults import Crash
from qanat.sim.testing import assert_kept

pytestmark = pytest.mark.paper("S7")

SWARM = "scenarios/mesh_swarm.toml"


@pytest.mark.rotating
@pytest.mark.paper("S8")
@pytest.mark.parametrize("part", range(4))
def test_the_mesh_keeps_its_promises_under_swarm_faults(part: int) -> None:
    assert_kept(load_scenario(SWARM), share(range(part * 50, part * 50 + 50)))


def test_two_hundred_clients_through_faults_at_fixed_times() -> None:
    assert_kept(load_scenario("scenarios/mesh_faults.toml"), range(2))


@pytest.mark.paper("S8")
@pytest.mark.parametrize("fanout", [1, 2, 8])
def test_every_fanout_reaches_everyone(fanout: int) -> None:
    scenario = load_scenario(SWARM)
    config = scenario.config
    assert isinstance(config, MeshStudyConfig)
    mesh = msgspec.structs.replace(config.mesh, fanout=fanout)
    changed = msgspec.structs.replace(config, mesh=mesh)
    assert_kept(dataclasses.replace(scenario, config=changed), range(5))


def test_a_region_under_load_keeps_up() -> None:
    figures = measure(clients=100, events_per_s=100_000, virtual_s=0.3)
    assert figures["least_delivered"] > figures["published"] / 2
    assert figures["mean_delivered"] > figures["published"] * 0.9


# Planted bugs: each takes one rule out of the protocol, and some seed must notice.


class AsksNoProxy(MeshClient):
    """What neighbours no longer have is waited for, for ever."""

    def _fall_back(self, incoming: Incoming) -> None:
        pass


class DeliversAsItComes(MeshClient):
    """Without the precondition of deliverEvent."""

    def _take(self, incoming: Incoming, batch: Batch) -> bool:
        if batch.last > incoming.cnt:
            self._deliver(incoming, batch, batch.first, batch.last)
        return True


class TakesAnswersForWhole(MeshClient):
    """Does not look at what an answer says it leaves out: what a neighbour discarded is never asked for."""

    def _left_out(self, incoming: Incoming, first: int, upto: int) -> None:
        pass


class EndlessBuffer(ReceiveBuffer):
    def add(self, stream: int, first: int, last: int, batch: Batch) -> None:
        self._keep(stream, Held(first, last, batch.virtual_size, batch))


class DiscardsNothing(MeshClient):
    """Its receive buffer grows with the stream."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.buffer = EndlessBuffer(self.config.buffer_bytes)


class AsksWithoutEnd(MeshClient):
    """Every NOTIFY is a request, however many are under way."""

    def _has_room(self, incoming: Incoming, peer: Address) -> bool:
        return True


class TakesNewsAlone(MeshClient):
    """What it heard of before it was anyone's neighbour, or not at all, is not asked for later."""

    def _want_older(self, incoming: Incoming, peer: Address, cnt: int, *, at_once: bool) -> None:
        pass


class TellsOthersOfVisitors(MeshClient):
    """A client that nobody can connect to gossips like the others."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{**named, "listens": True})


class NeverLate(MeshClient):
    """A neighbour that crashed without a word is waited for, and so is a lost channel."""

    def on_other_timer(self, name: str) -> None:
        if name != "late":
            super().on_other_timer(name)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        pass


@pytest.mark.parametrize(
    ("client", "checker"),
    [
        (AsksNoProxy, "everything"),
        (DeliversAsItComes, "gapless"),
        (TakesAnswersForWhole, "everything"),
        (DiscardsNothing, "bounded-buffers"),
        (AsksWithoutEnd, "bounded-buffers"),
        (TakesNewsAlone, "everything"),
        (TellsOthersOfVisitors, "unadvertised"),
        (NeverLate, "everything"),
    ],
)
def test_a_planted_bug_is_caught(client: type[MeshClient], checker: str) -> None:
    def build(config: MeshStudyConfig, places: Sequence[Place]) -> Factory:
        return factory(config, places, client, StudyProxy)

    scenario = planted(load_scenario(SWARM), build)
    scenario = dataclasses.replace(
        scenario,
        time=msgspec.structs.replace(scenario.time, liveness_s=6.0),
        faults=tuple(Crash(at_s=at_s, for_s=0.2, nodes=("eu/client-*",), pick=8) for at_s in (0.3, 0.6, 0.9)),
    )
    _, (worst, *_) = first_caught(scenario, range(10))
    assert worst.checker == checker
