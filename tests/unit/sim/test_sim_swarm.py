"""Faults drawn by the seed."""

import random

from hypothesis import given
from hypothesis import strategies as st

from qanat.sim import Swarm, draw_faults
from qanat.sim.swarm import SWARM_KINDS


@given(st.integers(0, 10**9), st.floats(0.1, 100))
def test_faults_fall_into_the_phase_and_replay(seed: int, until_s: float) -> None:
    faults = draw_faults(Swarm(), random.Random(seed), until_s)
    assert all(0 <= fault.at_s <= until_s for fault in faults)
    assert all(fault.for_s is not None and 0.05 <= fault.for_s <= 5.0 for fault in faults)
    assert faults == draw_faults(Swarm(), random.Random(seed), until_s)


def test_seeds_take_different_subsets_and_every_kind_occurs() -> None:
    subsets = {
        frozenset(type(fault).__name__ for fault in draw_faults(Swarm(), random.Random(seed), 60.0))
        for seed in range(50)
    }
    assert len(subsets) > 10
    # `forget` must be asked for; `cut` and `one-way` are both of the type Cut.
    assert len(frozenset().union(*subsets)) == len(SWARM_KINDS) - 2


def test_only_the_kinds_asked_for() -> None:
    swarm = Swarm(kinds=("crash",), take=1.0, nodes=("eu/*",))
    faults = draw_faults(swarm, random.Random(1), 600.0)
    assert {type(fault).__name__ for fault in faults} == {"Crash"}
    assert draw_faults(Swarm(kinds=("crash",), take=0.0), random.Random(1), 600.0) == []
