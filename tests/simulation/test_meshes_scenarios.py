"""Meshes of several streams keep their promises while the proxy moves; and broken versions are caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from qanat.kernel import Factory
from qanat.protocols.mesh.meshes import ClientMeshesRequest, ProxyMeshesRequest
from qanat.protocols.mesh.requests import Serve
from qanat.protocols.views import UseProxy
from qanat.sim import Place, Scenario, run
from qanat.sim.testing import assert_kept
from qanat.studies.meshes import MeshesStudyConfig, StudyMember, StudyReplica, factory
from qanat.studies.scenarios import load_scenario

pytestmark = pytest.mark.paper("S7")

ROOT = Path(__file__).parents[2]
SWARM = "scenarios/meshes_swarm.toml"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # so that replay commands can be pasted


def test_meshes_keep_their_promises_while_the_proxy_moves() -> None:
    assert_kept(load_scenario(SWARM), range(20))


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


def planted(member: type[StudyMember] = StudyMember, replica: type[StudyReplica] = StudyReplica) -> Scenario:
    scenario = load_scenario(ROOT / SWARM)

    def build(config: MeshesStudyConfig, places: Sequence[Place]) -> Factory:
        return factory(config, places, member, replica)

    return dataclasses.replace(scenario, kit=dataclasses.replace(scenario.kit, build=build))


@pytest.mark.parametrize(
    ("scenario", "checker"),
    [(planted(member=StaysWithTheOldProxy), "every-stream"), (planted(replica=ServesOn), "one-serves")],
    ids=["stays", "serves on"],
)
def test_planted_bugs_are_caught(scenario: Scenario, checker: str) -> None:
    for seed in range(20):
        violations = run(scenario, seed).violations
        if violations:
            assert {violation.checker for violation in violations} == {checker}
            return
    raise AssertionError("no seed noticed")
