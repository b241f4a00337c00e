"""Applications that begin with a snapshot get every row and then every change, whatever happens meanwhile;
and broken versions are caught."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.simulation.planting import first_caught, planted

from qanat.checks import publisher_tables
from qanat.checks.publisher_hosts import builder
from qanat.checks.scenarios import load_scenario
from qanat.events.position import Position
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.flows import Served, Traveller
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.snapshots import Snapshots
from qanat.protocols.publisher.tables import Places, Where
from qanat.sim.testing import assert_kept

SNAPSHOT, COPIES = "scenarios/publisher_snapshot.toml", "scenarios/publisher_snapshot_copies.toml"


@pytest.mark.paper("W9")
def test_rows_come_before_changes_and_none_is_missing() -> None:
    assert_kept(load_scenario(SNAPSHOT), range(3))


@pytest.mark.paper("W10")
@pytest.mark.paper("W9")
@pytest.mark.parametrize("part", range(2))
def test_a_snapshot_is_taken_over_by_another_copy(part: int) -> None:
    assert_kept(load_scenario(COPIES), range(part * 5, part * 5 + 5))


class PassesOver(Snapshots):
    """Who is behind goes on where the others are."""

    def arrange(self, waiting: Iterable[Traveller]) -> None:
        some = list(waiting)
        for caravan in self.all.values():
            for one in some:
                if one.served.snapshots[one.part] == caravan.snapshot:
                    one.sent = max(one.sent, caravan.at)
        super().arrange(some)


class NoTurning(Publisher):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.snapshots = PassesOver(self.context)


class BeginsAtTheEnd(Publisher):
    """The log counts from where it is when the rows were read."""

    def _begin(self, served: Served, position: Position, snapshot: int = -1) -> None:
        super()._begin(served, position, snapshot)
        if snapshot >= 0:
            self._begin_snapshot(served, 0, snapshot + 3)
            served.scouts[0].sent = Position(snapshot + 3, 0)


class ForgetsTheSnapshot(Publisher):
    """After a crash the log is read, from wherever the flows are."""

    def on_start(self, now_us: int, saved: Any) -> None:
        super().on_start(now_us, saved)
        for served in self.served.values():
            served.snapshots.clear()


@pytest.mark.parametrize(("broken", "seed"), [(NoTurning, 5), (BeginsAtTheEnd, 0), (ForgetsTheSnapshot, 5)])
def test_a_publisher_that_leaves_out_a_rule_is_caught(broken: type[Publisher], seed: int) -> None:
    scenario = planted(load_scenario(SNAPSHOT), builder(broken))
    _, violations = first_caught(scenario, range(seed, seed + 40))
    assert violations[0].checker in ("order", "marked", "nothing-lost")


class TrustsOldPlaces(Places):
    """Where rows end that nobody got is still taken for where those begin who come later."""

    def begin(self, after: int, beyond: int) -> tuple[int, Where]:
        found = self._wheres[-1]
        super().begin(after, beyond)
        self._wheres[-1] = found
        return self.highest, found


def test_a_reader_that_goes_on_where_nobody_is_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_tables, "Places", TrustsOldPlaces)
    _, violations = first_caught(load_scenario(SNAPSHOT), range(40))
    assert violations[0].checker in ("order", "marked", "nothing-lost")


class SharesNumbers(CopyPublisher):
    """One who takes over goes on in the numbering of the copy before."""

    def _begin_snapshot(self, served: Served, part: int, sequence: int) -> None:
        super()._begin_snapshot(served, part, sequence)
        if sequence >= 0:
            served.snapshots[part] = served.snapshots[part]._replace(epoch=1)


def test_a_copy_that_goes_on_in_numbers_of_another_is_caught() -> None:
    scenario = planted(load_scenario(COPIES), builder(SharesNumbers))
    _, violations = first_caught(scenario, range(7, 60))
    assert violations[0].checker in ("order", "marked", "nothing-lost")
