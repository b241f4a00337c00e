"""Study S14: how much of a stream garbage collection by key leaves (Sprinkler, section 5.4, Fig. 9 and
10)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from qanat.studies.registry import Report, Say
from qanat.studies.s14.claims import PAPER_ZETA_KEPT, PAPER_ZIPF_KEPT, Measured, claims, notes, where_met
from qanat.studies.s14.curves import Ages, Curve, age_curve, storage_curve
from qanat.studies.s14.figures import draw
from qanat.studies.s14.workload import Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW_RATE = 10.0
"""New keys per tick: "we fix the parameter λ at 10"."""
RATE = 200.0
"""Invalidations per tick of the line that the paper found like a real workload."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large a run of the study is."""

    log_upto: int
    """Events that go through the log, as well as the counter."""
    upto: int
    """Events of each curve of Fig. 10."""
    ticks: int
    """Length of each run of Fig. 9."""
    age_max: int
    """Oldest age in Fig. 9: a tenth of the run, so that few keys are too young to reach it."""
    keys: int = 100_000
    skews: tuple[float, ...] = (1.1, 1.2, 1.5)
    age_skews: tuple[float, ...] = (1.1, 1.5)
    rates: tuple[float, ...] = (50.0, 100.0, RATE)
    seed: int = 1


QUICK = Sizes(log_upto=10_000_000, upto=10_000_000, ticks=10_000, age_max=1_000)
FULL = Sizes(log_upto=32_000_000, upto=100_000_000, ticks=100_000, age_max=10_000)


SPARK_EVENTS = 1_000_000_000
SPARK_QUICK_EVENTS = 10_000_000


def of_events(events: int) -> Sizes:
    """Sizes of a run on Spark, in the proportions of the others. Fig. 9 is as straight a line at 100,000
    ticks as it will ever be."""
    ticks = min(max(1_000, events // 1_000), 200_000)
    return Sizes(log_upto=min(10_000_000, events), upto=events, ticks=ticks, age_max=ticks // 10)


class Measuring(Protocol):
    """Who draws the stream and counts: one process here, or Spark."""

    def storage(self, model: Model, seed: int, *, upto: int, log_upto: int, say: Say) -> Curve: ...

    def ages(self, model: Model, seed: int, *, ticks: int, age_max: int, say: Say) -> Ages: ...


class Here:
    """In this process."""

    def __init__(self, chunk: int | None = None) -> None:
        self._chunk = chunk

    def storage(self, model: Model, seed: int, *, upto: int, log_upto: int, say: Say) -> Curve:
        return storage_curve(model, seed, upto=upto, log_upto=log_upto, say=say, chunk=self._chunk)

    def ages(self, model: Model, seed: int, *, ticks: int, age_max: int, say: Say) -> Ages:
        return age_curve(model, seed, ticks=ticks, age_max=age_max, chunk=self._chunk)


def run(*, quick: bool, out: Path, say: Say) -> Report:
    return study(QUICK if quick else FULL, out=out, say=say)


def run_on_spark(spark: SparkSession, *, quick: bool, events: int | None, out: Path, say: Say) -> Report:
    from qanat.studies.s14.spark import OnSpark

    events = events or (SPARK_QUICK_EVENTS if quick else SPARK_EVENTS)
    return study(of_events(events), out=out, say=say, measuring=OnSpark(spark))


def study(sizes: Sizes, *, out: Path, say: Say, measuring: Measuring | None = None) -> Report:
    by = measuring or Here()
    zeta = [Model(skew=skew, rate=RATE, new_rate=NEW_RATE) for skew in sizes.skews]
    zipf = [Model(skew=skew, keys=sizes.keys) for skew in sizes.skews]
    growing = Model(skew=sizes.skews[0], keys=sizes.keys, new_rate=RATE / 10)
    measured = Measured(
        ages=_ages(by, sizes, say),
        zeta=[_curve(by, model, sizes, say) for model in zeta],
        zipf=[_curve(by, model, sizes, say) for model in zipf],
        zipf_growing=_curve(by, growing, sizes, say),
    )
    figures = [str(path) for path in draw(measured, out)]
    asked = [*measured.zeta, *measured.zipf, measured.zipf_growing]
    checked = sum(int((curve.generated <= curve.log_upto).sum()) for curve in asked)
    agreed = (
        f"the log and an independent count agree at all {checked} points up to {asked[0].log_upto:,} events, "
        "and so does what a new reader gets"
    )
    return Report("S14", claims(measured), figures, [agreed, *notes(measured), *_variants(sizes, say)])


def _ages(by: Measuring, sizes: Sizes, say: Say) -> dict[float, list[Ages]]:
    ages: dict[float, list[Ages]] = {}
    for skew in sizes.age_skews:
        for rate in sizes.rates:
            model = Model(skew=skew, rate=rate, new_rate=NEW_RATE)
            curve = by.ages(
                model,
                sizes.seed,
                ticks=sizes.ticks,
                age_max=sizes.age_max,
                say=lambda line: say(f"  {line}"),
            )
            say(f"Fig. 9, skew {skew:g}, λ={rate:g}: slope {curve.slope:.2f} over {sizes.ticks:,} ticks")
            ages.setdefault(skew, []).append(curve)
    return ages


def _curve(by: Measuring, model: Model, sizes: Sizes, say: Say) -> Curve:
    say(_title(model))
    return by.storage(
        model, sizes.seed, upto=sizes.upto, log_upto=sizes.log_upto, say=lambda line: say(f"  {line}")
    )


def _variants(sizes: Sizes, say: Say) -> list[str]:
    """What the paper leaves open, run both ways: how much would it matter?"""
    skew, upto, new_rate = sizes.skews[0], min(1_000_000, sizes.upto), RATE / 10
    told = []
    for model, name, paper in (
        (Model(skew=skew), "Zeta without new keys", PAPER_ZETA_KEPT),
        (Model(skew=skew, new_rate=NEW_RATE, rank_max=2**31 - 1), "Zeta, ranks of 31 bits", PAPER_ZETA_KEPT),
        (
            Model(skew=skew, keys=sizes.keys, new_rate=new_rate, announced=True),
            "Zipf, new keys are events",
            PAPER_ZIPF_KEPT,
        ),
    ):
        say(_title(model))
        curve = storage_curve(model, sizes.seed, upto=upto, log_upto=0, say=lambda line: say(f"  {line}"))
        told.append(where_met(curve, name, paper))
    return told


def _title(model: Model) -> str:
    what = "Fig. 10a, Zeta" if model.keys is None else f"Fig. 10b, Zipf over {model.keys:,} keys"
    new = f", {model.new_rate:g} new keys per {model.rate:g} invalidations" if model.new_rate else ""
    told = ", told as events" if model.announced else ""
    bits = "" if model.rank_max is None else f", ranks up to {model.rank_max:,}"
    return f"{what}, skew {model.skew:g}{new}{told}{bits}"
