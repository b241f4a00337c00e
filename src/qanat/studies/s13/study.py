"""Study S13: the full protocol in simulation (Sprinkler, sections 5.2 and 5.3, Fig. 5 to 8)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from qanat.studies.registry import Report, Say
from qanat.studies.s13.claims import BEST_FANOUT, Measured, claims, notes
from qanat.studies.s13.figures import draw
from qanat.studies.s13.runs import CutSpec, Point, PointSpec, Spec, Timeline, measure_all

SHUFFLE_MS = 30.0
"""Of Fig. 6: "the shuffle time in these experiments is fixed at 30ms"."""
LOADS = tuple(number / 6 for number in (1, 3, 5, 7, 9, 11))
"""Of Fig. 6: a sixth of 2.592 million events/s, and a third more at each step."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large a run of the study is."""

    clients: int
    """In each of three regions."""
    cut: CutSpec
    fanouts: tuple[int, ...]
    shuffles_ms: tuple[float, ...]
    load_fanouts: tuple[int, ...]
    loads: tuple[float, ...] = LOADS
    measure_s: float = 0.6
    """Of each point, after its first 300 ms."""
    workers: int | None = None


QUICK = Sizes(
    clients=50,
    cut=CutSpec(clients=20, cut_s=3.0, heal_s=8.0, end_s=12.0),
    fanouts=(1, 2, 4, 8),
    shuffles_ms=(30.0, 300.0),
    load_fanouts=(2, 4, 8),
    loads=(1 / 6, 5 / 6, 9 / 6, 11 / 6),
)
FULL = Sizes(
    clients=1000,
    cut=CutSpec(clients=100),
    fanouts=tuple(range(1, 9)),
    shuffles_ms=(10.0, 30.0, 100.0, 300.0),
    load_fanouts=(2, 4, 8),
)


def run(*, quick: bool, out: Path, say: Say) -> Report:
    return study(QUICK if quick else FULL, out=out, say=say)


def study(sizes: Sizes, *, out: Path, say: Say) -> Report:
    shuffles = [
        PointSpec(sizes.clients, fanout, shuffle_ms, measure_s=sizes.measure_s)
        for fanout in sizes.fanouts
        for shuffle_ms in sizes.shuffles_ms
    ]
    loads = [
        PointSpec(sizes.clients, fanout, SHUFFLE_MS, load, measure_s=sizes.measure_s)
        for fanout in sizes.load_fanouts
        for load in sizes.loads
    ]
    cold = PointSpec(sizes.clients, BEST_FANOUT, SHUFFLE_MS, measure_s=sizes.measure_s, trickle=False)
    # The longest first, so that no core idles at the end.
    specs: list[Spec] = [sizes.cut, cold, *shuffles, *loads]
    say(
        f"{len(specs)} runs: {sizes.clients:,} clients in each of three regions, "
        f"{sizes.cut.clients:,} in each of four for the cut"
    )
    cut, first, *points = measure_all(specs, say, sizes.workers)
    if not isinstance(cut, Timeline) or not isinstance(first, Point):
        raise TypeError("runs and results are out of step")
    of_points = [point for point in points if isinstance(point, Point)]
    measured = Measured(of_points[: len(shuffles)], of_points[len(shuffles) :], cut, first)
    figures = [str(path) for path in draw(measured, out)]
    return Report("S13", claims(measured), figures, notes(measured))
