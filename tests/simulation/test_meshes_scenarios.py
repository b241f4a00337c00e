"""Meshes of several streams keep their promises while the proxy moves; and broken versions are caught."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, planted

from qanat.checks.meshes import MeshesStudyConfig, StudyMember, StudyReplica, factory
from qanat.checks.scenarios import load_scenario
from qanat.kernel import Factory
from qanat.protocols.mesh.meshes import ClientMeshesRequest, ProxyMeshesRequest
from qanat.protocols.mesh.requests import Serve
from qanat.protocols.views import UseProxy
from qanat.sim import Place
from qanat.sim.testing import assert_kept

pytestmark = pytest.mark.paper("S7")

SWARM = "scenarios/meshes_swarm.toml"


@pytest.mark.rotating
def test_meshes_keep_their_promises_while_the_proxy_moves() -> None:
    assert_kept(load_scenario(SWARM), share(range(20)))


class StaysWithTheOldProxy(StudyMember):
    """What it does not get from neighbours it asks of who no longer serves, for ever."""

    def on_request(self, now_us: int, request: ClientMeshesRequest) -> None:
        if not isinstance(request, UseProxy):
            super().on_request(now_us, request)


class ServesOn(StudyReplica):
    """Another replica is the tail, and this one does not stop."""

    def on_request(self, now_us: int, request: ProxyMeshesRequest) -> None:
        if request != Serve(False):
            super().on_request(now_us, request)


@pytest.mark.parametrize(
    ("member", "replica", "checker"),
    [(StaysWithTheOldProxy, StudyReplica, "every-stream"), (StudyMember, ServesOn, "one-serves")],
    ids=["stays", "serves on"],
)
def test_planted_bugs_are_caught(
    member: type[StudyMember], replica: type[StudyReplica], checker: str
) -> None:
    def build(config: MeshesStudyConfig, places: Sequence[Place]) -> Factory:
        return factory(config, places, member, replica)

    _, violations = first_caught(planted(load_scenario(SWARM), build), range(20))
    assert {violation.checker for violation in violations} == {checker}
