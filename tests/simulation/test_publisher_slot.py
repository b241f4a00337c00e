"""A datastore that keeps its log until it is told gives up nothing that anybody may have to go back to,
whoever crashes; and broken versions are caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, planted

from qanat.checks.publisher_hosts import Hosts, PublisherStudy, publisher_of
from qanat.checks.scenarios import load_scenario
from qanat.events.position import Position
from qanat.kernel import Factory
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.machine import Publisher
from qanat.sim import Place, Scenario, SimNode
from qanat.sim.journal import DiskSpec
from qanat.sim.testing import assert_kept

ALONE, COPIES = "scenarios/publisher_swarm.toml", "scenarios/publisher_copies.toml"


def slot(path: str) -> Scenario:
    """The scenario on datastores whose logs are slots: nobody cuts them, and each has one reader. Disks take
    their time, and nobody else holds the logs up."""
    scenario = load_scenario(path)
    study: Any = scenario.config
    publisher = msgspec.structs.replace(study.publisher, caravans_max=1)
    handle_ms = dict.fromkeys(study.applications, (0.1, 1.0))
    config = msgspec.structs.replace(study, slot=True, publisher=publisher, handle_ms=handle_ms)
    writing: Any = scenario.workload
    workload = msgspec.structs.replace(writing, cut_every_s=0.0)
    return dataclasses.replace(scenario, config=config, workload=workload, disk=DiskSpec(sync_ms=30.0))


@pytest.mark.rotating
@pytest.mark.paper("W9")
def test_a_publishers_slot_is_told_what_is_on_disk() -> None:
    assert_kept(slot(ALONE), share(range(8)))


@pytest.mark.paper("W10")
def test_slots_of_copies_are_told_what_the_coordinator_has_of_all_parts() -> None:
    assert_kept(slot(COPIES), range(4))


class FromMemory(Hosts):
    """What is marked counts before it is on record."""

    def _settle(self, node: SimNode, life: int) -> None:
        super()._settle(node, life)
        if node.life == life and node.up and node.ready:
            marks = [one.marked for served in publisher_of(node).served.values() for one in served.travellers]
            if marks and all(served.scouts for served in publisher_of(node).served.values()):
                self.give_up(node, min(marks))

    def on_deliver(self, world: Any, node: SimNode, item: Any) -> None:
        if type(item).__name__ != "Settled":
            super().on_deliver(world, node, item)


def build(publisher: type[Publisher]) -> Callable[[PublisherStudy, Sequence[Place]], Factory]:
    return lambda study, places: FromMemory(study, places, publisher).make


def test_a_slot_that_is_told_what_is_marked_in_memory_loses_updates() -> None:
    _, (worst, *_) = first_caught(planted(slot(ALONE), build(Publisher)), range(6, 60))
    assert worst.checker == "losses", worst.explanation
    _, (worst, *_) = first_caught(planted(slot(COPIES), build(CopyPublisher)), range(60))
    assert worst.checker == "losses", worst.explanation


class MindsItsOwn(CopyPublisher):
    """A copy gives up what its own parts are done with."""

    def _settled(self) -> Position | None:
        marks = [self.owners._recorded(part) for part in self.owners.owned]
        return min((mark for mark in marks if mark is not None), default=None)


def test_a_copy_that_minds_only_its_own_parts_is_caught() -> None:
    def built(study: PublisherStudy, places: Sequence[Place]) -> Factory:
        return Hosts(study, places, MindsItsOwn).make

    _, (worst, *_) = first_caught(planted(slot(COPIES), built), range(60))
    assert worst.checker == "losses", worst.explanation
