"""The pictures of study W15, one for each figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from qanat.studies.plots import COLOURS, GREY, picture
from qanat.studies.w15.balance import Spread
from qanat.studies.w15.caravans import Hiccup, Sample, Tradeoff
from qanat.studies.w15.failover import PRIMARY, SECONDARY, Failover
from qanat.studies.w15.latency import Millis
from qanat.studies.w15.replay import Replayed
from qanat.studies.w15.subscriber import Step

BIN_S = 0.5


def draw_4(path: Path, points: Sequence[Replayed]) -> None:
    counts = [point.applications for point in points]
    with picture(path, panels=2) as (_, (times, rates)):
        times.plot(counts, [point.seconds for point in points], "o-", color=COLOURS[0])
        rates.plot(counts, [point.mb_per_s for point in points], "o-", color=COLOURS[0])
        rates.axhline(350, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="paper")
        rates.legend()
        for axes, title, what in (
            (times, "Fig. 4a: time to deliver all to all", "seconds"),
            (rates, "Fig. 4b: throughput of the publisher", "MB/s"),
        ):
            axes.set_title(title)
            axes.set_xlabel("applications")
            axes.set_ylabel(what)
            axes.set_ylim(bottom=0)


def draw_5(path: Path, peak: float, steps: Sequence[Step]) -> None:
    with picture(path) as (_, (axes,)):
        axes.plot(
            [step.taken / 1e3 for step in steps], [step.latency_ms for step in steps], "o-", color=COLOURS[0]
        )
        axes.axvline(peak / 1e3, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="as fast as it can")
        axes.set_title("Fig. 5c: one subscriber, as more and more is sent to it")
        axes.set_xlabel("thousand updates/s taken")
        axes.set_ylabel("mean latency, ms")
        axes.set_yscale("log")
        axes.legend()


def draw_7(path: Path, points: Sequence[Tradeoff]) -> None:
    with picture(path) as (_, (axes,)):
        for policy, colour in zip(("threshold", "least-waiting"), COLOURS, strict=False):
            some = [point for point in points if point.policy == policy]
            places = [point.amplification for point in some], [point.latency_s for point in some]
            axes.plot(*places, "o-", color=colour, label=policy)
            for point in some:
                axes.annotate(
                    str(point.caravans),
                    (point.amplification, point.latency_s),
                    xytext=(5, 5),
                    textcoords="offset points",
                    color=colour,
                )
        axes.set_title("Fig. 7: what is read and how long updates wait, by caravans allowed")
        axes.set_xlabel("read amplification, logs")
        axes.set_ylabel("mean latency, s")
        axes.set_ylim(bottom=0)
        axes.legend()


def draw_8(path: Path, samples: Sequence[Sample], hiccup: Hiccup) -> None:
    times = [sample.at_s for sample in samples]
    with picture(path, panels=2) as (_, (rates, readers)):
        rates.plot(times, [sample.sent_mb_s for sample in samples], color=COLOURS[0], label="sent")
        rates.plot(times, [sample.read_mb_s for sample in samples], color=COLOURS[1], label="read")
        rates.set_title("Fig. 8: read from the log and sent to six")
        rates.set_ylabel("MB/s")
        rates.legend()
        readers.step(times, [sample.caravans for sample in samples], color=COLOURS[2])
        readers.set_title("caravans")
        for axes in (rates, readers):
            axes.axvspan(hiccup.from_s, hiccup.from_s + hiccup.for_s, color=GREY, alpha=0.15)
            axes.set_xlabel("seconds; grey: one is held up")
            axes.set_ylim(bottom=0)


def draw_9(path: Path, taken: Millis) -> None:
    with picture(path) as (_, (axes,)):
        ordered = np.sort(taken)
        axes.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered), color=COLOURS[0])
        axes.axvline(100, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_title("Fig. 9: from a commit on MariaDB to the callback")
        axes.set_xlabel("milliseconds")
        axes.set_ylabel("share of updates")
        axes.set_xscale("log")


def draw_10(path: Path, found: Failover) -> None:
    edges = np.arange(0, found.plan.seconds + 2, BIN_S)
    with picture(path, panels=2) as (_, panels):
        for axes, came, title in zip(
            panels,
            (found.many, found.single),
            ("Fig. 10a: may be served by both", "Fig. 10b: by the primary alone"),
            strict=True,
        ):
            for publisher, colour in ((PRIMARY, COLOURS[1]), (SECONDARY, COLOURS[0])):
                counts = [found.delivered(came, publisher, at, at + BIN_S) / BIN_S for at in edges]
                axes.plot(
                    edges + BIN_S / 2,
                    counts,
                    color=colour,
                    label="primary" if publisher == PRIMARY else "secondary",
                )
            axes.axvspan(found.failed_s, found.returned_s, color=GREY, alpha=0.15)
            axes.set_title(title)
            axes.set_xlabel("seconds; grey: the primary is dead")
            axes.set_ylabel("updates/s")
            axes.legend()


def draw_11(path: Path, spreads: Sequence[Spread]) -> None:
    low, high = min(each.loads[0] for each in spreads), max(each.loads[-1] for each in spreads)
    bins = np.arange(low - 0.5, high + 1.5)
    with picture(path) as (_, (axes,)):
        for each, colour in zip(spreads, COLOURS, strict=False):
            weights = np.full(len(each.loads), 1 / len(each.loads))
            axes.hist(
                each.loads, bins.tolist(), weights=weights, color=colour, alpha=0.6, label=each.strategy
            )
        axes.set_title("Fig. 11: shards of a subscriber")
        axes.set_xlabel("shards")
        axes.set_ylabel("share of subscribers")
        axes.legend()
