"""The study of section 5.1: the rules of its claims, and the whole with made-up rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.studies.s12.prototype import Point, Timing
from qanat.studies.s12.study import (
    Line,
    Sizes,
    claims,
    decreases_slightly,
    falls_per_driver,
    rises_then_saturates,
    study,
)

pytestmark = pytest.mark.paper("S12")


def line(*rates: float, proxies: int = 1) -> Line:
    return Line(proxies, [(drivers, [rate]) for drivers, rate in enumerate(rates, 1)])


def test_rising_and_level_is_saturated() -> None:
    assert rises_then_saturates(line(1, 2, 3, 2.9))
    assert rises_then_saturates(line(2.9, 3, 2.2))
    assert not rises_then_saturates(line(3, 2.9, 2.8))
    assert not rises_then_saturates(line(1, 2, 1.5, 3))
    assert not rises_then_saturates(line(1, 3, 1))


def test_slightly_is_less_but_not_much_less() -> None:
    assert decreases_slightly(line(10), line(9, proxies=2))
    assert not decreases_slightly(line(10), line(11, proxies=2))
    assert not decreases_slightly(line(10), line(5, proxies=2))


def test_a_driver_among_many_gets_less() -> None:
    assert falls_per_driver(line(4, 5, 5))
    assert not falls_per_driver(line(1, 2.1, 3.3))


def test_the_rounds_give_medians_and_a_picture(tmp_path: Path) -> None:
    rates = iter([1e6, 2e6, 3e6, 4e6, 1.2e6, 2.2e6, 2.8e6, 3.8e6, 9e6, 9e6, 9e6, 9e6])

    def made_up(proxies: int, drivers: int, timing: Timing) -> Point:
        return Point(proxies, drivers, next(rates), 0.0)

    said: list[str] = []
    sizes = Sizes(proxies=(1, 2), drivers=(1, 2), rounds=3, timing=Timing(0))
    report = study(sizes, out=tmp_path, say=said.append, measure=made_up)
    assert len(said) == 12
    assert report.claims[0].measured == "1.20, 2.20 million/s"
    assert [Path(figure).name for figure in report.figures] == ["S12-fig4.png"]
    assert (tmp_path / "S12-fig4.png").stat().st_size > 10_000


def test_the_paper_has_its_peak_with_three_proxies() -> None:
    peak = claims([line(1e6), line(0.9e6, proxies=2), line(2.7e6, proxies=3)])[5]
    assert (peak.measured, peak.holds) == (2_700_000, True)
    assert not claims([line(1e6), line(1e6), line(2.5e6, proxies=3)])[5].holds
