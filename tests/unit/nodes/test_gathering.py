"""A replica that looks once at what came together keeps the promises of a chain, and says less."""

from __future__ import annotations

import dataclasses

import pytest

from qanat.nodes.gathering import GatheringChain
from qanat.sim import Scenario
from qanat.sim.testing import assert_kept
from qanat.studies import chain_hosts, region_hosts
from qanat.studies.scenarios import load_scenario


def gathering(name: str) -> Scenario:
    """The scenario with the replicas that real processes run."""
    hosts = region_hosts if name.startswith("region") else chain_hosts
    plain = hosts.SimRegionReplica if hosts is region_hosts else hosts.SimReplica
    replica = type("Gathering", (plain,), {"chain_type": GatheringChain})
    scenario = load_scenario(f"scenarios/{name}.toml")
    return dataclasses.replace(scenario, kit=dataclasses.replace(scenario.kit, build=hosts.builder(replica)))


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("chain_swarm", 20),
        ("chain_clocks", 6),
        ("chain_collect", 3),
        ("chain_resize", 8),
        ("chain_losses", 1),
        ("region_swarm", 8),
        ("region_collect", 3),
        ("region_changes", 5),
        ("region_losses", 1),
    ],
)
def test_the_promises_of_chains_and_regions(name: str, seeds: int) -> None:
    assert_kept(gathering(name), range(1000, 1000 + seeds))
