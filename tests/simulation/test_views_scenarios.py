"""Views keep their promises with churn and faults; and broken versions of them are caught."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.rotation import share
from tests.simulation.planting import planted

from qanat.checks.scenarios import load_scenario
from qanat.checks.views import proxies
from qanat.checks.views_checkers import diameter_bound, distances
from qanat.kernel import Address, Context, Factory
from qanat.protocols.views import Membership, Views, ViewsConfig
from qanat.sim import Place, run
from qanat.sim.testing import assert_kept

pytestmark = pytest.mark.paper("S6")

SWARM = "scenarios/views_swarm.toml"


@pytest.mark.rotating
@pytest.mark.parametrize("part", range(4))
def test_views_keep_their_promises_through_churn_and_faults(part: int) -> None:
    assert_kept(load_scenario(SWARM), share(range(part * 50, part * 50 + 50)))


def test_one_that_is_up_for_a_moment_is_not_taken_for_long_dead() -> None:
    assert_kept(load_scenario(SWARM), [4142])


def test_views_of_two_hundred() -> None:
    assert_kept(load_scenario("scenarios/views_churn.toml"), range(3))


def test_views_of_a_thousand_heal_after_a_cut() -> None:
    assert_kept(load_scenario("scenarios/views_large.toml"), [1])


# Planted bugs: each takes one rule out of the protocol, and some seed must notice.


class SkipsReinforcement(Membership):
    """The sender of a view gets no place in it."""

    def _reinforce(self, sender: Address) -> None:
        pass


class NeverForgets(Membership):
    """Copies do not age: the dead live on."""

    def _grow_older(self) -> None:
        self._add_proxy()

    def _merge(self, sender: Address, members: Sequence[Address], ages: Sequence[int]) -> None:
        super()._merge(sender, members, [1] * len(ages))


class Hoards(Membership):
    """Removes nobody."""

    def _merge(self, sender: Address, members: Sequence[Address], ages: Sequence[int]) -> None:
        self.view.update(zip(members, ages, strict=True))
        self._reinforce(sender)
        self.view.pop(self._me, None)


@pytest.mark.parametrize(
    ("part", "checkers"),
    [
        (SkipsReinforcement, {"connected", "in-degrees"}),
        (NeverForgets, {"dead-vanish"}),
        (Hoards, {"bounded-views"}),
    ],
)
def test_a_planted_bug_is_caught(part: type[Membership], checkers: set[str]) -> None:
    class Broken(Views):
        def __init__(self, context: Context, config: ViewsConfig, proxy: Address) -> None:
            super().__init__(context, config, proxy)
            self.membership = part(context, config, proxy)

    def build(config: ViewsConfig, places: Sequence[Place]) -> Factory:
        proxy_of = proxies(places)
        return lambda context: Broken(context, config, proxy_of(context.address))

    scenario = planted(load_scenario(SWARM), build)
    caught = [violations[0].checker for seed in range(3) if (violations := run(scenario, seed).violations)]
    assert caught  # by chance the dead may be forgotten all the same
    assert set(caught) <= checkers


# The checkers' own arithmetic


def test_distances_in_a_small_graph() -> None:
    line = [0b0010, 0b0101, 0b1010, 0b0100]
    assert distances(line, 0) == (3, 0b1111)
    assert distances(line, 1) == (2, 0b1111)
    assert distances([0b10, 0b01, 0], 2) == (0, 0b100)


def test_the_bound_grows_with_the_logarithm() -> None:
    assert [diameter_bound(count, 20) for count in (10, 100, 1000, 10_000)] == [3, 4, 5, 6]
