"""What Sprinkler's sections 5.2 and 5.3 claim of the simulated system, and when we say that it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

from qanat.studies.registry import Claim
from qanat.studies.s13.runs import Point, Timeline

BEST_FANOUT = 4
SAME = 0.01
"""Throughputs that differ by less than this share are the same: a batch more or less at the ends of a run."""
CARRIED = 0.97
"""Of the load, from which on it counts as carried: not saturated."""
PAPER_LATENCY_MS = 300.0
DIP = 0.95
"""Of the usual throughput: below it is a drop."""
CATCH_UP = 0.03
"""Above the usual throughput: more than a batch that falls into one step or the next."""
LEVEL = 0.98
"""Of the usual throughput: from here on it has recovered."""


class Measured(NamedTuple):
    shuffles: list[Point]
    """Fig. 5: every F at every shuffle time."""
    loads: list[Point]
    """Fig. 6: some F at every load."""
    cut: Timeline
    """Fig. 7."""
    cold: Point
    """As the point of Fig. 5 with F = 4 and 30 ms, but with subscriptions made under load."""


def claims(measured: Measured) -> list[Claim]:
    return [*shuffle_claims(measured.shuffles), *load_claims(measured.loads), *cut_claims(measured.cut)]


# --- Fig. 5 ---------------------------------------------------------------------------------------------


def shuffle_claims(points: Sequence[Point]) -> list[Claim]:
    fanouts = sorted({point.spec.fanout for point in points})
    times = sorted({point.spec.shuffle_ms for point in points})
    share = {(point.spec.fanout, point.spec.shuffle_ms): point.share for point in points}
    copies = {(point.spec.fanout, point.spec.shuffle_ms): point.copies for point in points}
    means = {fanout: mean(share[fanout, time] for time in times) for fanout in fanouts}
    best = max(means, key=lambda fanout: means[fanout])
    usual = 30.0 if 30.0 in times else times[0]
    largest, smallest, short, long = fanouts[-1], fanouts[0], times[0], times[-1]
    return [
        Claim(
            f"Fig. 5: F = 4 with a shuffle time of {usual:g} ms carries the load",
            "2.592 million/s or more",
            f"{share[BEST_FANOUT, usual]:.1%}",
            share[BEST_FANOUT, usual] >= CARRIED,
        ),
        Claim(
            "Fig. 5: the best throughput is achieved for a fanout of 4 (mean over shuffle times)",
            "F = 4",
            f"F = {best}: " + ", ".join(f"{means[fanout]:.1%} at {fanout}" for fanout in fanouts),
            means[BEST_FANOUT] >= means[best] - SAME,
        ),
        Claim(
            f"Fig. 5: larger fanouts exhaust uplinks: less arrives at F = {largest} than at 4, whatever the"
            " shuffle time",
            "less",
            ", ".join(f"{share[largest, time]:.0%} for {share[BEST_FANOUT, time]:.0%}" for time in times),
            all(share[largest, time] < share[BEST_FANOUT, time] - SAME for time in times),
        ),
        Claim(
            f"Fig. 5: small fanouts suffer from long shuffle times (F = {smallest}, {short:g} to"
            f" {long:g} ms)",
            "less",
            f"{share[smallest, short]:.1%} becomes {share[smallest, long]:.1%}",
            share[smallest, long] < share[smallest, short] - SAME,
        ),
        Claim(
            f"Fig. 5: a shorter shuffle time reduces the load on proxies (F = {smallest + 1}, copies that one"
            " sends)",
            "less",
            f"{copies[smallest + 1, long]:.2f} becomes {copies[smallest + 1, short]:.2f}",
            copies[smallest + 1, short] < copies[smallest + 1, long],
        ),
    ]


# --- Fig. 6 ---------------------------------------------------------------------------------------------


def load_claims(points: Sequence[Point]) -> list[Claim]:
    line = sorted((point for point in points if point.spec.fanout == BEST_FANOUT), key=_load)
    carried = [point for point in points if point.share >= CARRIED]
    slowest = max((point.worst_latency_ms for point in carried), default=float("nan"))
    clients = 3 * points[0].spec.clients
    peak = max(point.throughput for point in line)
    similar = max(
        max(point.latency_ms.values()) / min(point.latency_ms.values()) for point in carried or line[:1]
    )
    return [
        Claim(
            "Fig. 6: throughput goes up with the load until the system saturates (F = 4)",
            "up, then level",
            ", ".join(f"{point.throughput / 1e6:.2f}" for point in line) + " million/s",
            rises_then_saturates([point.throughput for point in line]),
        ),
        Claim(
            f"Fig. 6: before saturation the mean latency to {clients:,} clients is generally below 300 ms",
            "< 300 ms",
            f"at most {slowest:.0f} ms in {len(carried)} points",
            bool(carried) and slowest < PAPER_LATENCY_MS,
        ),
        Claim(
            "Fig. 6: events of all regions fare alike",
            "similar",
            f"latencies differ by ×{similar:.2f} at most",
            similar <= 1.5,
        ),
        Claim(
            "Fig. 6: the maximum load of the prototype lies before saturation at F = 4",
            "2.592 million/s",
            f"peak {peak / 1e6:.2f} million/s",
            peak >= CARRIED * points[0].spec.events_per_s / points[0].spec.load,
        ),
    ]


def _load(point: Point) -> float:
    return point.spec.load


def rises_then_saturates(throughput: Sequence[float]) -> bool:
    """Each value is above the one before, or all from there on are within a tenth of the highest."""
    top = max(throughput)
    level = next((at for at, value in enumerate(throughput) if value >= 0.9 * top), 0)
    rising = all(after > before for before, after in pairwise(throughput[: level + 1]))
    return rising and all(value >= 0.9 * top for value in throughput[level:])


# --- Fig. 7 ---------------------------------------------------------------------------------------------


class Phases:
    """The parts of a timeline that the claims speak of."""

    def __init__(self, line: Timeline) -> None:
        self.line, spec = line, line.spec
        lull = min(2.0, spec.cut_s / 3)
        self.before = self._span(lull, spec.cut_s)
        self.during = self._span((spec.cut_s + spec.heal_s) / 2, spec.heal_s)
        self.after = self._span(spec.heal_s + (spec.end_s - spec.heal_s) / 2, spec.end_s)
        self.cut_at = round(spec.cut_s / line.step_s)
        self.heal_at = round(spec.heal_s / line.step_s)
        self.usual = mean(line.throughput[self.before])

    def _span(self, start_s: float, end_s: float) -> slice:
        return slice(round(start_s / self.line.step_s), round(end_s / self.line.step_s))

    def latency(self, region: str, part: slice) -> float:
        return mean(self.line.latency_ms[region][part])

    def until(self, start: int, holds: Callable[[float], bool]) -> float:
        """Seconds from a step to the first of which something holds."""
        for at in range(start, len(self.line.throughput)):
            if holds(self.line.throughput[at] / self.usual):
                return (at - start) * self.line.step_s
        return float("inf")


def cut_claims(line: Timeline) -> list[Claim]:
    phases = Phases(line)
    usual, cut_at, heal_at = phases.usual, phases.cut_at, phases.heal_at
    around = line.throughput[cut_at : cut_at + round(2 / line.step_s)]
    recovered_s = phases.until(cut_at + 1, lambda share: share >= LEVEL) + line.step_s
    above = [at for at in range(cut_at, heal_at) if line.throughput[at] > usual * (1 + CATCH_UP)]
    caught_up_s = (above[-1] + 1 - cut_at) * line.step_s if above else 0.0
    before = {region: phases.latency(region, phases.before) for region in ("0", "2")}
    during = {region: phases.latency(region, phases.during) for region in ("0", "2")}
    after = {region: phases.latency(region, phases.after) for region in ("0", "2")}
    peak = max(line.latency_ms["2"][cut_at : cut_at + round(2 / line.step_s)])
    return [
        Claim(
            "Fig. 7a: throughput drops briefly when the link is taken out",
            "a brief drop",
            f"{min(around) / usual:.1%} of the usual",
            min(around) < DIP * usual,
        ),
        Claim(
            "Fig. 7a: it recovers shortly after the next advertisements",
            "about 1 s",
            f"{recovered_s:g} s after the cut",
            recovered_s <= 2.0,
        ),
        Claim(
            "Fig. 7a: it is higher for a while, at most 10 s, as regions 2 and 3 catch up",
            "about 5 s",
            f"{max(around) / usual:.1%} of the usual, {caught_up_s:g} s after the cut the last time",
            bool(above) and caught_up_s <= 10.0,
        ),
        Claim(
            "Fig. 7b: before the outage latencies of events from regions 0 and 2 are similar, and below"
            " 300 ms",
            "around 200 ms",
            f"{before['0']:.0f} and {before['2']:.0f} ms",
            abs(before["0"] - before["2"]) <= 0.25 * before["0"] and before["2"] <= PAPER_LATENCY_MS,
        ),
        Claim(
            "Fig. 7b: latencies of events from region 2 increase significantly at the cut",
            "significantly",
            f"up to {peak:.0f} ms",
            peak >= 2 * before["2"],
        ),
        Claim(
            "Fig. 7b: after the new subscription they are slightly higher than before",
            "slightly higher",
            f"{during['2']:.0f} for {before['2']:.0f} ms",
            before["2"] < during["2"] <= 1.5 * before["2"],
        ),
        Claim(
            "Fig. 7b: after the link is restored they drop to the original level",
            "as before",
            f"{after['2']:.0f} for {before['2']:.0f} ms",
            abs(after["2"] - before["2"]) <= 0.1 * before["2"],
        ),
        Claim(
            "Fig. 7b: events from region 0, not at the failed link, are hardly touched",
            "only region 2",
            f"{before['0']:.0f}, {during['0']:.0f}, {after['0']:.0f} ms",
            abs(during["0"] - before["0"]) <= 0.25 * before["0"],
        ),
    ]


def notes(measured: Measured) -> list[str]:
    cold, spec = measured.cold, measured.cold.spec
    clients = 3 * measured.shuffles[0].spec.clients
    fallen = max(measured.shuffles, key=lambda point: point.copies - point.spec.fanout)
    messages = measured.cut.messages + sum(
        point.messages for point in [*measured.shuffles, *measured.loads, cold]
    )
    caught_up = (
        f"with subscriptions made under load, F = {spec.fanout} delivers {cold.throughput / 1e6:.3f} million"
        f" events/s from 300 ms on, {cold.share - 1:+.1%} of the load: what was published before is caught up"
    )
    return [
        (
            f"{clients:,} clients in three regions for Fig. 5 and 6, {4 * measured.cut.spec.clients:,} in"
            " four for Fig. 7"
        ),
        f"{messages:,} messages simulated",
        caught_up,
        f"most requests that fall back to the proxy: {fallen.spec}, {fallen.copies:.1f} copies from it",
    ]
