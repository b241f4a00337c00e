"""Fig. 9, 10a and 10b, and the share that is kept, each drawn so that its claim is seen at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qanat.studies.plots import COLOURS, GREY, Label, label_lines, picture
from qanat.studies.s14.claims import PAPER_ZETA_KEPT, PAPER_ZIPF_KEPT, ROUGHLY, Measured
from qanat.studies.s14.curves import Ages, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = (":", "--", "-")


def draw(measured: Measured, out: Path) -> list[Path]:
    paths = [out / "S14-fig9.png", out / "S14-fig10.png", out / "S14-kept.png"]
    draw_ages(measured.ages, paths[0])
    draw_stored(measured, paths[1])
    draw_kept(measured, paths[2])
    return paths


def draw_ages(ages: dict[float, list[Ages]], path: Path) -> None:
    with picture(path) as (_, (axes,)):
        labels = []
        for (skew, curves), colour in zip(ages.items(), COLOURS, strict=False):
            for curve, dash in zip(curves, _DASHES[-len(curves) :], strict=False):
                axes.loglog(curve.age, curve.invalidations, dash, color=colour)
                text = f"skew {skew:g}, λ={curve.model.rate:g}"
                labels.append(Label(curve.age[-1], curve.invalidations[-1], text, colour))
        title = "Fig. 9: new keys draw the invalidations;\nsteeper with skew, higher with λ"
        _name(axes, title, "age of the key, ticks since it came", "invalidations per tick of age", labels)


def draw_stored(measured: Measured, path: Path) -> None:
    """As in the paper: events stored against events generated."""
    with picture(path, panels=2, height=5.2) as (figure, panels):
        for axes, (curves, growing, paper, title) in zip(panels, _models(measured), strict=True):
            ends = [float(curves[0].generated[0]), float(curves[0].generated[-1])]
            labels = []
            for share, text in ((1.0, "no collection"), (paper, f"{paper:.0%} kept")):
                axes.loglog(
                    ends, [share * end for end in ends], color=GREY, linewidth=1, linestyle=(0, (4, 3))
                )
                labels.append(Label(ends[1], share * ends[1], text, GREY))
            for curve, colour in zip(curves, COLOURS, strict=False):
                axes.loglog(curve.generated, curve.stored, color=colour)
                asked = curve.generated <= curve.log_upto
                axes.loglog(curve.generated[asked], curve.stored[asked], "o", color=colour)
                labels.append(
                    Label(curve.generated[-1], curve.stored[-1], f"skew {curve.model.skew:g}", colour)
                )
            for curve in growing:
                axes.loglog(curve.generated, curve.stored, "--", color=COLOURS[0])
                text = f"skew {curve.model.skew:g}, new keys"
                labels.append(Label(curve.generated[-1], curve.stored[-1], text, COLOURS[0]))
            _name(axes, title, "events generated", "events stored", labels)
        figure.suptitle(
            "Fig. 10: events stored at a proxy under garbage collection by key (dots: counted in the log)",
            x=0.01,
            ha="left",
        )


def draw_kept(measured: Measured, path: Path) -> None:
    """The same as a share: a claim holds where the curve of the smallest skew is inside the band."""
    with picture(path, panels=2, height=4.6) as (figure, panels):
        for axes, (curves, growing, paper, title) in zip(panels, _models(measured), strict=True):
            slack = ROUGHLY * (1 - paper)
            axes.axhspan(100 * (paper - slack), 100 * (paper + slack), color="#e8e8e8", zorder=0)
            axes.axhline(100 * paper, color=GREY, linewidth=1)
            labels = []
            for curve, colour in zip(curves, COLOURS, strict=False):
                axes.semilogx(curve.generated, 100 * curve.kept, color=colour)
                labels.append(_ending(curve, f"skew {curve.model.skew:g}", colour))
            for curve in growing:
                axes.semilogx(curve.generated, 100 * curve.kept, "--", color=COLOURS[0])
                labels.append(_ending(curve, f"{curve.model.skew:g}, new keys", COLOURS[0]))
            _mark_crossing(axes, curves[0], paper)
            axes.set_ylim(0, 70)
            _name(axes, title, "events generated", "% of events kept", labels)
        figure.suptitle(
            "Share of events kept; grey: what the paper says, give or take a tenth of the saving",
            x=0.01,
            ha="left",
        )


def _name(axes: Axes, title: str, x: str, y: str, labels: list[Label]) -> None:
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.margins(x=0.02)
    label_lines(axes, labels)


def _models(measured: Measured) -> list[tuple[list[Curve], list[Curve], float, str]]:
    keys = measured.zipf[0].model.keys
    return [
        (measured.zeta, [], PAPER_ZETA_KEPT, "a) Zeta model: infinitely many keys"),
        (measured.zipf, [measured.zipf_growing], PAPER_ZIPF_KEPT, f"b) Zipf model: {keys:,} keys"),
    ]


def _ending(curve: Curve, name: str, colour: str) -> Label:
    kept = 100 * float(curve.kept[-1])
    return Label(float(curve.generated[-1]), kept, f"{name}: {kept:.2g} %", colour)


def _mark_crossing(axes: Axes, curve: Curve, paper: float) -> None:
    at = curve.generated_at(paper)
    if at is None:
        return
    axes.plot([at], [100 * paper], "o", color="black", markersize=7, zorder=5)
    axes.annotate(
        f"{paper:.0%} at\n{float(f'{at:.2g}'):,.0f} events",
        (at, 100 * paper),
        xytext=(-4, 46),
        textcoords="offset points",
        ha="left",
        arrowprops={"arrowstyle": "-", "color": "black"},
    )
