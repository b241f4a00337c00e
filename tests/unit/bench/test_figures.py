"""What benchmarks count."""

import os
import time
from collections.abc import Callable

import pytest

from qanat.bench.figures import Figure, cpu_s, in_turns, medians


def test_the_cpu_time_of_processes() -> None:
    before, own = cpu_s([os.getpid()]), time.process_time()
    while time.process_time() - own < 0.1:
        pass
    assert cpu_s([os.getpid()]) > before


def test_medians_are_of_each_figure() -> None:
    assert medians([{"a": 1.0, "b": 9.0}, {"a": 3.0, "b": 1.0}, {"a": 2.0, "b": 5.0}]) == {"a": 2.0, "b": 5.0}


def test_a_figure_knows_its_spread() -> None:
    figure = medians([{"a": 1.0}, {"a": 3.0}, {"a": 2.0}])["a"]
    assert isinstance(figure, Figure)
    assert (figure, figure.lowest, figure.highest) == (2.0, 1.0, 3.0)


@pytest.mark.parametrize(("first", "order"), [(0, "OtOttOOt"), (1, "OttOOttO")])
def test_two_sides_take_turns(first: int, order: str) -> None:
    """After a slice of each that is thrown away."""
    seen: list[str] = []

    def side(name: str, values: list[float]) -> Callable[[], float]:
        def measure() -> float:
            seen.append(name)
            return values.pop(0)

        return measure

    pair = in_turns(
        side("O", [9.0, 1.0, 4.0, 30.0]), side("t", [9.0, 2.0, 2.0, 3.0]), 3, warm=True, first=first
    )
    assert "".join(seen) == order
    assert (pair.ours, pair.theirs) == (4.0, 2.0)
    assert pair.ratio == 2.0, "the median of 0.5, 2 and 10: the disturbed third pair is one of three"
