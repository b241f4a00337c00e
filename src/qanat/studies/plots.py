"""One look for all pictures: drawn without a screen, written as PNG, readable at the width of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by people who do not see all colours (Okabe and Ito), darkest first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#777777"
_LABEL_POINTS = 13.0
"""From one name to the next: a line of text in the font below."""

_STYLE: dict[str, object] = {
    "figure.dpi": 120,
    "savefig.dpi": 120,
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "lines.linewidth": 2.0,
    "lines.markersize": 4.5,
    "legend.frameon": False,
}


@contextmanager
def picture(path: Path, *, panels: int = 1, height: float = 4.6) -> Iterator[tuple[Figure, list[Axes]]]:
    """A picture with panels side by side; written when the block ends."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure, axes = pyplot.subplots(
            1,
            panels,
            figsize=(7.2 if panels == 1 else 5.6 * panels, height),
            squeeze=False,
            layout="constrained",
        )
        try:
            yield figure, list(axes[0])
            path.parent.mkdir(parents=True, exist_ok=True)
            # No date and no version inside: the same numbers make the same file.
            figure.savefig(path, metadata={"Software": None})
        except OSError as error:
            raise LocalError(f"cannot write the picture {path}: {error.strerror or error}") from error
        finally:
            pyplot.close(figure)


class Label(NamedTuple):
    """A line's name, for where the line ends."""

    x: float
    y: float
    text: str
    colour: str


def label_lines(axes: Axes, labels: Sequence[Label]) -> None:
    """Names lines where they end, so that nobody has to look a colour up; names that would meet are moved
    apart.

    Called last, when the axes have their limits.
    """
    figure = axes.get_figure(root=True)
    if figure is None:
        return
    figure.draw_without_rendering()  # now the axes know where they lie
    to_points = 72 / figure.dpi
    ends = sorted((float(axes.transData.transform((at.x, at.y))[1]) * to_points, at) for at in labels)
    height = 0.0
    for end, at in ends:
        height = max(end, height + _LABEL_POINTS)
        axes.annotate(
            at.text,
            (at.x, at.y),
            xytext=(8, height - end),
            textcoords="offset points",
            color=at.colour,
            va="center",
            annotation_clip=False,
        )
