"""Study S12: how many events a second one, two and three proxies carry (Sprinkler, section 5.1, Fig. 4)."""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec

from qanat.studies.plots import COLOURS, GREY, Label, label_lines, picture
from qanat.studies.registry import Claim, Report, Say
from qanat.studies.s12.prototype import CALL_EVENTS, EVENT_BYTES, Point, Timing, measure

PAPER_PEAK = 2_600_000
"""Events per second of three proxies: "the throughput peaks between 2.6-2.7 million events per second"."""
SLIGHTLY = 0.75
"""What is left after "decreases slightly"."""
NO_COLLAPSE = 0.7
"""Beyond its peak a system that is saturated keeps at least this share of it."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    proxies: tuple[int, ...] = (1, 2, 3)
    drivers: tuple[int, ...]
    """At each proxy."""
    rounds: int
    timing: Timing


QUICK = Sizes(drivers=(1, 2, 4), rounds=1, timing=Timing(drive_s=2.0))
FULL = Sizes(drivers=(1, 2, 3, 4, 6, 8), rounds=5, timing=Timing(drive_s=5.0))
"""Five runs a point, as in the paper."""


class Line(msgspec.Struct, frozen=True):
    """One line of the figure: a number of proxies, as drivers are added."""

    proxies: int
    points: list[tuple[int, list[float]]]
    """Drivers per proxy, and the events per second of each round."""

    @property
    def medians(self) -> list[float]:
        return [median(rates) for _, rates in self.points]

    @property
    def peak(self) -> float:
        return max(self.medians)

    @property
    def per_driver(self) -> list[float]:
        return [
            rate / drivers / self.proxies
            for rate, (drivers, _) in zip(self.medians, self.points, strict=True)
        ]


def run(*, quick: bool, out: Path, say: Say) -> Report:
    return study(QUICK if quick else FULL, out=out, say=say)


def study(
    sizes: Sizes, *, out: Path, say: Say, measure: Callable[[int, int, Timing], Point] = measure
) -> Report:
    lines = [Line(proxies, [(drivers, []) for drivers in sizes.drivers]) for proxies in sizes.proxies]
    for number in range(sizes.rounds):
        for line in lines:
            for drivers, rates in line.points:
                point = measure(line.proxies, drivers, sizes.timing)
                rates.append(point.events_per_s)
                say(
                    f"round {number + 1} of {sizes.rounds}: {line.proxies} proxies, {drivers} drivers each: "
                    f"{point.events_per_s / 1e6:.2f} million events/s until all clients had all"
                )
    path = out / "S12-fig4.png"
    draw(lines, path)
    return Report("S12", claims(lines), [str(path)], notes(lines))


# The rules


def rises_then_saturates(line: Line) -> bool:
    """More with more drivers up to the peak (a twentieth is noise), and no collapse after it; one driver that
    saturates the system alone shows no rise."""
    rates = line.medians
    top = rates.index(line.peak)
    rising = all(later > 0.95 * earlier for earlier, later in itertools.pairwise(rates[: top + 1]))
    return top > 0 and rising and min(rates[top:]) >= NO_COLLAPSE * line.peak


def decreases_slightly(before: Line, after: Line) -> bool:
    return SLIGHTLY * before.peak <= after.peak <= before.peak


def falls_per_driver(line: Line) -> bool:
    """Each driver gets less in the end than one alone does."""
    return line.per_driver[-1] < line.per_driver[0]


def claims(lines: list[Line]) -> list[Claim]:
    found = [
        Claim(
            f"Fig. 4a: {_proxies(line)}: throughput rises with the drivers until the system is saturated",
            "rises, then level",
            ", ".join(f"{rate / 1e6:.2f}" for rate in line.medians) + " million/s",
            rises_then_saturates(line),
        )
        for line in lines
    ]
    found += [
        Claim(
            f"Fig. 4a: the peak decreases slightly from {_proxies(before)} to {after.proxies}",
            "slightly",
            f"to {after.peak / before.peak:.2f} of it",
            decreases_slightly(before, after),
        )
        for before, after in itertools.pairwise(lines)
    ]
    three = lines[-1]
    found.append(
        Claim(
            f"the peak of {_proxies(three)}, events/s",
            "2.6 to 2.7 million, a machine for each process",
            round(three.peak),
            three.peak >= PAPER_PEAK,
        )
    )
    found += [
        Claim(
            f"Fig. 4b: {_proxies(line)}: a driver gets less, the more there are",
            "falls",
            ", ".join(f"{rate / 1e6:.2f}" for rate in line.per_driver) + " million/s each",
            falls_per_driver(line),
        )
        for line in lines
    ]
    return found


def notes(lines: list[Line]) -> list[str]:
    most = max(line.proxies * (2 + line.points[-1][0]) + line.proxies for line in lines)
    return [
        (
            f"{os.cpu_count()} cores ({platform.machine()}) for all processes together, up to {most} of them:"
            " proxies, their coordinators, a client for each proxy, and the drivers; in the paper each has a"
            " machine of its own"
        ),
        (
            f"a driver publishes {CALL_EVENTS:,} events of {EVENT_BYTES} bytes a call; proxies keep them on"
            " disk, each is a chain of one replica"
        ),
        "counted from the first publish until the last client has every event of every stream",
    ]


def draw(lines: list[Line], path: Path) -> None:
    with picture(path, panels=2) as (_, (whole, each)):
        for axes, title, what in (
            (whole, "Fig. 4a: all streams together", "million events/s"),
            (each, "Fig. 4b: per driver", "million events/s of one driver"),
        ):
            labels = []
            for line, colour in zip(lines, COLOURS, strict=False):
                drivers = [count for count, _ in line.points]
                rates = line.medians if axes is whole else line.per_driver
                axes.plot(drivers, [rate / 1e6 for rate in rates], "o-", color=colour)
                if axes is whole:
                    low = [min(rounds) / 1e6 for _, rounds in line.points]
                    high = [max(rounds) / 1e6 for _, rounds in line.points]
                    axes.fill_between(drivers, low, high, color=colour, alpha=0.15)
                labels.append(Label(drivers[-1], rates[-1] / 1e6, _proxies(line), colour))
            if axes is whole:
                axes.axhline(PAPER_PEAK / 1e6, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
                labels.append(Label(lines[0].points[-1][0], PAPER_PEAK / 1e6, "paper, 3 proxies", GREY))
            axes.set_title(title)
            axes.set_xlabel("drivers per proxy")
            axes.set_ylabel(what)
            axes.set_ylim(bottom=0)
            label_lines(axes, labels)


def _proxies(line: Line) -> str:
    return "1 proxy" if line.proxies == 1 else f"{line.proxies} proxies"
