"""The study of sections 5.2 and 5.3: the rules of its claims, the meter, and the whole at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.events.batch import Batch
from qanat.protocols.mesh import MeshConfig
from qanat.sim import World
from qanat.sim.testing import make_world
from qanat.studies.s13.claims import cut_claims, load_claims, rises_then_saturates, shuffle_claims
from qanat.studies.s13.meter import BIN_US, Meter
from qanat.studies.s13.runs import EVENTS_PER_S, CutSpec, Point, PointSpec, Timeline, measure_point
from qanat.studies.s13.study import Sizes, study
from qanat.studies.s13.world import THREE, Load, Publisher, Settings, build_world

pytestmark = pytest.mark.paper("S13")
S = 1_000_000


def point(
    fanout: int, shuffle_ms: float, share: float, *, load: float = 1.0, copies: float = 4.0, ms: float = 100
) -> Point:
    spec = PointSpec(1000, fanout, shuffle_ms, load)
    rate = share * spec.events_per_s
    regions = THREE.regions
    return Point(spec, rate, dict.fromkeys(regions, rate / 3), dict.fromkeys(regions, ms), copies, 1)


def verdicts(found: list[object]) -> list[bool]:
    return [claim.holds for claim in found]  # type: ignore[attr-defined]


def test_the_papers_figure_5_would_pass_and_another_would_not() -> None:
    paper = [
        point(1, 30.0, 0.9),
        point(1, 300.0, 0.5),
        point(2, 30.0, 1.0, copies=2.0),
        point(2, 300.0, 0.95, copies=2.5),
        point(4, 30.0, 1.0),
        point(4, 300.0, 0.99),
        point(8, 30.0, 0.8),
        point(8, 300.0, 0.7),
    ]
    assert all(verdicts([*shuffle_claims(paper)]))
    other = [point(fanout, ms, 0.9 + fanout / 100) for fanout in (1, 2, 4, 8) for ms in (30.0, 300.0)]
    assert not any(verdicts([*shuffle_claims(other)]))


def test_the_papers_figure_6_would_pass_and_a_slow_system_would_not() -> None:
    loads = (1 / 6, 1.0, 11 / 6)
    paper = [point(4, 30.0, min(1.0, 1.2 / load), load=load) for load in loads]
    assert all(verdicts([*load_claims(paper)]))
    slow = [point(4, 30.0, min(1.0, 0.5 / load), load=load, ms=400) for load in loads]
    assert verdicts([*load_claims(slow)]) == [True, False, True, False]


def test_saturation_is_level_not_a_collapse() -> None:
    assert rises_then_saturates([1, 2, 3, 2.9, 2.95])
    assert not rises_then_saturates([1, 2, 3, 1.5])
    assert not rises_then_saturates([1, 0.5, 3])


def timeline(*, dip: float, up: float, peak: float, during: float) -> Timeline:
    spec = CutSpec(clients=1, cut_s=10.0, heal_s=20.0, end_s=30.0)
    usual = EVENTS_PER_S
    throughput = [usual] * 30
    throughput[10], throughput[11] = dip * usual, up * usual
    two = [200.0] * 10 + [peak] + [during] * 9 + [200.0] * 10
    return Timeline(spec, 1.0, throughput, {"0": [200.0] * 30, "2": two}, 1)


def test_the_papers_figure_7_would_pass_and_an_untouched_system_would_not() -> None:
    assert all(verdicts([*cut_claims(timeline(dip=0.8, up=1.1, peak=900, during=230))]))
    untouched = verdicts([*cut_claims(timeline(dip=1.0, up=1.0, peak=200, during=200))])
    assert untouched == [False, True, False, True, False, False, True, True]


def delivering(world: World, meter: Meter, *times_us: int) -> None:
    batch = Batch.build(7, (10, 10), ghost=True, first=1, time_us=0)
    for at_us, node in zip(times_us, world.node_list, strict=False):
        world.now = at_us
        world.delivered(node, batch)


def test_a_batch_is_there_when_its_last_client_has_it() -> None:
    world = make_world()
    meter = Meter(world, clients=3)
    delivering(world, meter, 1000, 2000)
    assert meter.incomplete() == 1
    assert meter.latency_ms(7, 0, 1, now_us=50_000) == 50
    delivering(world, meter, 9000)
    assert meter.incomplete() == 0
    assert meter.latency_ms(7, 0, 1, now_us=50_000) == 9
    assert meter.throughput(0, BIN_US) == meter.throughput(0, BIN_US, 7) == 10 / 0.1
    assert meter.throughput(0, BIN_US, 8) == 0


def test_all_regions_get_what_each_publishes() -> None:
    settings = Settings(THREE, clients=5, mesh=MeshConfig(fanout=2))
    world = build_world(settings)
    meter = Meter(world, 15)
    Publisher(world, settings, Load(30_000.0, batch_ms=50.0), S, 2 * S)
    world.run(4 * S)
    assert world.violations == []
    assert meter.incomplete() == 0
    assert {len(meter.complete[settings.stream(region)]) for region in THREE.regions} == {20}


def test_a_run_is_a_function_of_its_settings() -> None:
    spec = PointSpec(10, 2, 30.0, load=0.1, measure_s=0.4)
    assert measure_point(spec) == measure_point(spec)


def test_the_study_from_runs_to_pictures(tmp_path: Path) -> None:
    said: list[str] = []
    sizes = Sizes(
        clients=5,
        cut=CutSpec(clients=3, cut_s=1.0, heal_s=2.0, end_s=3.0, load=0.1),
        fanouts=(1, 2, 4),
        shuffles_ms=(30.0, 100.0),
        load_fanouts=(4,),
        loads=(1 / 6, 1.0),
        measure_s=0.4,
        workers=1,
    )
    report = study(sizes, out=tmp_path, say=said.append)
    assert report.study == "S13"
    assert len(report.claims) == 17
    assert [Path(figure).name for figure in report.figures] == [
        "S13-fig5.png",
        "S13-fig6.png",
        "S13-fig7.png",
    ]
    assert all((tmp_path / Path(figure).name).stat().st_size > 10_000 for figure in report.figures)
    assert said[-1].startswith("10 of 10")
