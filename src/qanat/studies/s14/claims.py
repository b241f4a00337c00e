"""What Sprinkler's section 5.4 claims, and when we say that it holds.

The paper gives shares in round numbers and does not say after how many events. A share that falls as the
stream grows passes through every number, so "somewhere on the way it was 15 %" proves nothing: shares are
judged where the run ends, and notes say between which numbers of events they would hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from qanat.studies.registry import Claim
from qanat.studies.s14.curves import Ages, Curve
from qanat.studies.s14.workload import Floats

PAPER_ZETA_KEPT = 0.25
""""Garbage collection saves roughly three-fourths of the space"."""
PAPER_ZIPF_KEPT = 0.15
""""Garbage collection saves roughly 85 % of the space with a skew of 1.1"."""
ROUGHLY = 0.1
"""What "roughly" allows: a tenth of what the paper says is saved."""
LITTLE = 1.5
"""Two curves within this factor are taken as little different: less than a fifth of a decade on log-log
paper."""
STRAIGHT = 0.98
"""R² from which points on log-log paper are called a line."""


class Measured(NamedTuple):
    """All curves of the study. Sequences rise by skew (and by λ within a skew); `ages` maps a skew to its
    λs."""

    ages: dict[float, list[Ages]]
    zeta: list[Curve]
    zipf: list[Curve]
    zipf_growing: Curve
    """The Zipf model of the smallest skew with one new key for ten invalidations."""


# --- rules ----------------------------------------------------------------------------------------------


def saves_roughly(kept: float, paper_kept: float) -> bool:
    """Whether about as much is saved as the paper says."""
    return abs(kept - paper_kept) <= ROUGHLY * (1 - paper_kept)


def falls(values: Sequence[float] | Floats) -> bool:
    """Whether each value is below the one before."""
    return all(after < before for before, after in pairwise(values))


def lies_below(lower: Curve, upper: Curve) -> bool:
    """Whether one curve keeps less than another at every point where both are.

    Where both have seen all of a fixed set of keys, they keep one event for each, and there is nothing to
    compare.
    """
    count = min(len(lower.stored), len(upper.stored))
    less = lower.stored[:count] < upper.stored[:count]
    if upper.model.keys is not None and not upper.model.new_rate:
        less |= lower.stored[:count] == upper.model.keys
    return bool(less.all())


def stays_within(factor: float, ours: float, theirs: float) -> bool:
    return max(ours, theirs) <= factor * min(ours, theirs)


# --- claims ---------------------------------------------------------------------------------------------


def claims(measured: Measured) -> list[Claim]:
    return [*age_claims(measured.ages), *zeta_claims(measured.zeta), *zipf_claims(measured)]


def age_claims(ages: dict[float, list[Ages]]) -> list[Claim]:
    every = [curve for curves in ages.values() for curve in curves]
    slopes = [curves[-1].slope for curves in ages.values()]
    worst = min(curve.straightness for curve in every)
    heights = {skew: [float(curve.invalidations[0]) for curve in curves] for skew, curves in ages.items()}
    higher = all(
        np.all(low.invalidations[:count] < high.invalidations[:count])
        for curves in ages.values()
        for low, high in pairwise(curves)
        for count in [min(len(low.age), len(high.age))]
    )
    first = next(iter(heights))
    return [
        Claim(
            "Fig. 9: new keys attract more invalidations than old ones",
            "falls with age",
            f"×{every[0].invalidations[0] / every[0].invalidations[-1]:,.0f} from age 1 to"
            f" {every[0].age[-1]:,.0f}",
            all(falls(_by_octave(curve)) for curve in every),
        ),
        Claim(
            "Fig. 9: the decrease is roughly Zipf-like (a line on log-log)",
            "a line",
            f"R² at least {worst:.3f}",
            worst >= STRAIGHT,
        ),
        Claim(
            "Fig. 9: the slope is steeper with larger skew",
            "steeper",
            ", ".join(f"{slope:.2f} at {skew:g}" for skew, slope in zip(ages, slopes, strict=True)),
            falls(slopes),
        ),
        Claim(
            "Fig. 9: the line is higher for larger λ",
            "higher",
            f"at skew {first:g}: "
            + ", ".join(
                f"{height:,.0f} at λ={curve.model.rate:g}"
                for height, curve in zip(heights[first], ages[first], strict=True)
            ),
            higher,
        ),
    ]


def _by_octave(curve: Ages) -> list[float]:
    """Means over doublings of age: single bins of a few invalidations are up to chance."""
    octave = np.floor(np.log2(curve.age)).astype(np.int64)
    return [float(curve.invalidations[octave == which].mean()) for which in np.unique(octave)]


def zeta_claims(zeta: list[Curve]) -> list[Claim]:
    kept = float(zeta[0].kept[-1])
    return [
        Claim(
            f"Fig. 10a: Zeta model, skew {zeta[0].model.skew:g}: about 1/4 is kept ({_end(zeta[0])})",
            PAPER_ZETA_KEPT,
            round(kept, 4),
            saves_roughly(kept, PAPER_ZETA_KEPT),
        ),
        Claim(
            "Fig. 10a: more skew, less kept",
            "less",
            _by_skew(zeta),
            all(lies_below(more, less) for less, more in pairwise(zeta)),
        ),
    ]


def zipf_claims(measured: Measured) -> list[Claim]:
    zipf, growing = measured.zipf, measured.zipf_growing
    curve = zipf[0]
    kept = float(curve.kept[-1])
    name = f"Fig. 10b: Zipf model, skew {curve.model.skew:g}"
    found = [
        Claim(
            f"{name}: about 15 % is kept ({_end(curve)})",
            PAPER_ZIPF_KEPT,
            round(kept, 4),
            saves_roughly(kept, PAPER_ZIPF_KEPT),
        ),
        Claim(
            f"{name}: 85 % or more is saved ({_end(curve)})",
            1 - PAPER_ZIPF_KEPT,
            round(1 - kept, 4),
            kept <= PAPER_ZIPF_KEPT,
        ),
        Claim(
            "Fig. 10b: more skew, less kept",
            "less",
            _by_skew(zipf),
            all(lies_below(more, less) for less, more in pairwise(zipf)),
        ),
    ]
    paper_end = curve.generated_at(PAPER_ZIPF_KEPT)
    ends = [float(curve.generated[-1])] if paper_end is None else [paper_end, float(curve.generated[-1])]
    for generated in ends:
        with_new, without = growing.kept_at(generated), curve.kept_at(generated)
        found.append(
            Claim(
                f"Fig. 10b: new keys (1:10) make little difference (at {_count(generated)} events)",
                "little",
                f"{_share(without)} becomes {_share(with_new)}",
                stays_within(LITTLE, with_new, without),
            )
        )
    return found


def notes(measured: Measured) -> list[str]:
    """Where on the way the paper's numbers are met, and to what number of events that points."""
    zipf, growing = measured.zipf[0], measured.zipf_growing
    lines = [
        where_met(measured.zeta[0], "Zeta", PAPER_ZETA_KEPT),
        where_met(zipf, "Zipf", PAPER_ZIPF_KEPT),
        where_met(growing, "Zipf with new keys", PAPER_ZIPF_KEPT),
    ]
    apart = np.maximum.accumulate(growing.kept / zipf.kept)
    if apart[0] < LITTLE < apart[-1]:
        last = float(np.exp(np.interp(np.log(LITTLE), np.log(apart), np.log(zipf.generated))))
        lines.append(f"new keys make less than ×{LITTLE:g} up to {_count(last)} events")
    paper_end = zipf.generated_at(PAPER_ZIPF_KEPT)
    if paper_end is not None:
        there = ", ".join(f"{_share(c.kept_at(paper_end))} at skew {c.model.skew:g}" for c in measured.zeta)
        lines.append(f"where Zipf {zipf.model.skew:g} keeps 15 %, the Zeta model keeps {there}")
    return lines


def where_met(curve: Curve, name: str, paper: float) -> str:
    """Between which numbers of events a curve saves roughly what the paper says."""
    slack = ROUGHLY * (1 - paper)
    met = [(share, curve.generated_at(share)) for share in (paper + slack, paper, paper - slack)]
    told = [f"{_share(share)} of {_count(n)} events" for share, n in met if n is not None]
    end = f"{_share(float(curve.kept[-1]))} of {_count(float(curve.generated[-1]))}"
    return f"{name}, skew {curve.model.skew:g}, keeps {', '.join([*told, end])}"


def _by_skew(curves: list[Curve]) -> str:
    return ", ".join(f"{_share(float(curve.kept[-1]))} at {curve.model.skew:g}" for curve in curves)


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"


def _end(curve: Curve) -> str:
    return f"at {_count(float(curve.generated[-1]))} events"


def _count(value: float) -> str:
    """Three digits that count, with commas."""
    value = float(value)
    digits = max(0, int(np.floor(np.log10(value))) - 2)
    return f"{round(value, -digits):,.0f}"
