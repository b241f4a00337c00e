"""Study W15: what a publisher, its caravans and its subscribers carry, and how soon (Wormhole, section 4,
Fig. 4, 5 and 7 to 11)."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from qanat.operate.processes import workers
from qanat.studies.publishing import apply
from qanat.studies.registry import Claim, Report, Say
from qanat.studies.w15 import claims as rules
from qanat.studies.w15 import figures
from qanat.studies.w15 import subscriber as w15_subscriber
from qanat.studies.w15.balance import distribute
from qanat.studies.w15.caravans import Hiccup, hold_up, spread
from qanat.studies.w15.failover import Plan, fail_over
from qanat.studies.w15.latency import database, latencies_ms, launcher
from qanat.studies.w15.model import modelled
from qanat.studies.w15.replay import replay, stored
from qanat.studies.w15.subscriber import Pace, climb, take_all

PREPARED = 50_000
CARAVAN_BYTES_S = 2e6
"""What one caravan may read in Fig. 7, so that readers are what limits, as they are in production, and not
the cores."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    applications: tuple[int, ...]
    replayed: int
    """Updates of 1 KB in the log of Fig. 4."""
    taken: int
    """Updates of 500 bytes by which the subscriber's limit is found."""
    loads: tuple[float, ...]
    """Of that limit, in Fig. 5."""
    step_s: float
    spread_rows: int
    caravans: tuple[int, ...]
    """Of the paper's policy in Fig. 7."""
    compared: tuple[int, ...]
    """Of the other policy."""
    hiccup: Hiccup
    commits: int
    commits_per_s: float
    plan: Plan
    publishers: int = 50
    subscribers: int = 100


QUICK = Sizes(
    applications=(1, 5, 10, 20),
    replayed=60_000,
    taken=1_500_000,
    loads=(0.25, 0.5, 1.5),
    step_s=2.0,
    spread_rows=8_000,
    caravans=(10, 3, 2, 1),
    compared=(3, 2),
    hiccup=Hiccup(9.0, 3.0, 2.0),
    commits=4_000,
    commits_per_s=600.0,
    plan=Plan(12.0, 3.0, 5.0),
)
FULL = Sizes(
    applications=(1, 2, 3, 5, 7, 10, 15, 20),
    replayed=500_000,
    taken=10_000_000,
    loads=(0.1, 0.25, 0.5, 0.7, 0.9, 1.25, 1.5),
    step_s=8.0,
    spread_rows=20_000,
    caravans=(10, 7, 5, 4, 3, 2, 1),
    compared=(10, 7, 5, 4, 3, 2, 1),
    hiccup=Hiccup(60.0, 20.0, 10.0),
    commits=50_000,
    commits_per_s=600.0,
    plan=Plan(60.0, 15.0, 35.0),
)


def run(*, quick: bool, out: Path, say: Say) -> Report:
    return study(QUICK if quick else FULL, out=out, say=say)


def study(sizes: Sizes, *, out: Path, say: Say) -> Report:
    launcher()  # where there is none, that is said before minutes of work
    claims: list[Claim] = []
    with workers(max(*sizes.applications, 10), apply) as sinks:
        say(f"{len(sinks)} applications are ready")
        with stored(sizes.replayed) as log:
            points = []
            for count in sizes.applications:
                points.append(replay(log.urls[0], sizes.replayed, sinks[:count]))
                say(
                    f"Fig. 4: {count} applications: {points[-1].seconds:.1f} s, {points[-1].mb_per_s:.0f}"
                    " MB/s"
                )
        claims += rules.figure_4(points)
        figures.draw_4(out / "W15-fig4.png", points)
        with stored(PREPARED, w15_subscriber.VALUE_BYTES) as log:
            peak = take_all(log.urls[0], PREPARED, sinks[0], sizes.taken)
            say(f"Fig. 5: one subscriber takes {peak:,.0f} updates/s")
            pace = Pace(tuple(share * peak for share in sizes.loads), sizes.step_s)
            steps = climb(log.urls[0], PREPARED, sinks[0], pace)
            for step in steps:
                say(f"Fig. 5: {step.offered:,.0f} offered, {step.taken:,.0f} taken, {step.latency_ms:.1f} ms")
        claims += rules.figure_5(peak, steps)
        figures.draw_5(out / "W15-fig5.png", peak, steps)
        with stored(sizes.spread_rows) as log:
            trades = []
            for policy, counts in (("threshold", sizes.caravans), ("least-waiting", sizes.compared)):
                for count in counts:
                    trades.append(
                        spread(log.urls[0], sizes.spread_rows, sinks[:10], policy, count, CARAVAN_BYTES_S)
                    )
                    say(
                        f"Fig. 7: {policy}, {count} caravans: {trades[-1].amplification:.2f} logs,"
                        f" {trades[-1].latency_s:.2f} s"
                    )
        model = [
            modelled(policy, count) for policy in ("threshold", "least-waiting") for count in sizes.compared
        ]
        claims += rules.figure_7(trades, model)
        figures.draw_7(out / "W15-fig7.png", trades)
        samples = hold_up(sinks[:6], sizes.hiccup)
        say(f"Fig. 8: {len(samples)} samples, up to {max(sample.caravans for sample in samples)} caravans")
    claims += rules.figure_8(samples, 6, sizes.hiccup)
    figures.draw_8(out / "W15-fig8.png", samples, sizes.hiccup)
    with database() as server:
        taken = latencies_ms(server, sizes.commits, sizes.commits_per_s)
    say(f"Fig. 9: {len(taken):,} commits")
    claims += rules.figure_9(taken)
    figures.draw_9(out / "W15-fig9.png", taken)
    found = fail_over(sizes.plan)
    say(f"Fig. 10: taken over after {found.takeover_s:.2f} s")
    claims += rules.figure_10(found)
    figures.draw_10(out / "W15-fig10.png", found)
    spreads = [
        distribute(name, sizes.publishers, sizes.subscribers) for name in ("weighted-random", "coordinated")
    ]
    claims += rules.figure_11(*spreads)
    figures.draw_11(out / "W15-fig11.png", spreads)
    return Report(
        "W15", claims, [str(out / f"W15-fig{number}.png") for number in (4, 5, 7, 8, 9, 10, 11)], notes(sizes)
    )


def notes(sizes: Sizes) -> list[str]:
    scale = 5e9 / (sizes.replayed * 1000)
    return [
        f"{os.cpu_count()} cores for all processes together; in the paper the publisher alone has 32",
        f"Fig. 4: a log of {sizes.replayed / 1000:.0f} MB, 1/{scale:.0f} of the paper's; a RocksDB's",
        (
            "Fig. 5: a publisher that has its log in memory stands for the many of the paper; load grows by"
            " pace, not by shards"
        ),
        (
            f"Fig. 7: a log of {sizes.spread_rows / 1000:.0f} MB, 1/{20e9 / (sizes.spread_rows * 1000):,.0f}"
            f" of the paper's, and {CARAVAN_BYTES_S / 1e6:g} MB/s for a caravan; latency is from the"
            " beginning of the replay on, without the age of the data"
        ),
        (
            f"Fig. 8: {sizes.hiccup.seconds:g} s instead of 48 h, {sizes.hiccup.rows_per_s:g} updates/s, one"
            f" application held up for {sizes.hiccup.for_s:g} s"
        ),
        (
            f"Fig. 9: {sizes.commits:,} commits, {sizes.commits_per_s:g} a second; from when the statement"
            " was sent"
        ),
        (
            f"Fig. 10: {sizes.plan.seconds:g} s, the primary is dead from {sizes.plan.fails_s:g} to"
            f" {sizes.plan.returns_s:g}; time-outs are 0.8 s instead of 60"
        ),
        (
            f"Fig. 11: {sizes.publishers} publishers, {sizes.subscribers} subscribers; the strategies that"
            " ship, without a network"
        ),
    ]
