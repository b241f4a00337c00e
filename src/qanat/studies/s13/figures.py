"""Fig. 5, 6 and 7, drawn as in the paper."""

from __future__ import annotations

from pathlib import Path

from qanat.studies.plots import COLOURS, GREY, Label, label_lines, picture
from qanat.studies.s13.claims import Measured, Phases
from qanat.studies.s13.runs import EVENTS_PER_S, Point, Timeline

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def draw(measured: Measured, out: Path) -> list[Path]:
    paths = [out / "S13-fig5.png", out / "S13-fig6.png", out / "S13-fig7.png"]
    draw_shuffles(measured.shuffles, paths[0])
    draw_loads(measured.loads, paths[1])
    draw_cut(measured.cut, paths[2])
    return paths


def _colour(fanout: int) -> str:
    """The paper's best in the darkest one; each F looks the same in all figures."""
    at = {4: 0, 1: 1, 2: 2, 8: 3, 3: 4, 6: 5}.get(fanout)
    return GREY if at is None else COLOURS[at]


def _mark(fanout: int) -> str:
    return MARKS[fanout % len(MARKS)]


def draw_shuffles(points: list[Point], path: Path) -> None:
    with picture(path, panels=2, height=5.0) as (_, (throughput, copies)):
        for axes, title in (
            (throughput, "Fig. 5: what arrives, by F and shuffle time"),
            (copies, "what a proxy sends for that"),
        ):
            labels = []
            times = sorted({point.spec.shuffle_ms for point in points})
            for fanout in sorted({point.spec.fanout for point in points}):
                line = sorted(
                    (point for point in points if point.spec.fanout == fanout),
                    key=lambda point: point.spec.shuffle_ms,
                )
                values = [point.throughput / 1e6 if axes is throughput else point.copies for point in line]
                axes.semilogx(times, values, color=_colour(fanout), marker=_mark(fanout))
                labels.append(Label(times[-1], values[-1], f"F={fanout}", _colour(fanout)))
            axes.set_title(title)
            axes.set_xlabel("shuffle time, ms")
            axes.set_xticks(times, [f"{time:g}" for time in times])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.margins(x=0.05)
            if axes is throughput:
                axes.axhline(EVENTS_PER_S / 1e6, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
            label_lines(axes, labels)
        throughput.set_ylabel("million events/s, average client")
        copies.set_ylabel("copies of the load")


def draw_loads(points: list[Point], path: Path) -> None:
    regions = sorted(points[0].latency_ms)[:2]
    with picture(path, panels=len(regions), height=5.0) as (_, panels):
        for axes, region in zip(panels, regions, strict=True):
            labels = []
            for fanout in sorted({point.spec.fanout for point in points}):
                line = sorted(
                    (point for point in points if point.spec.fanout == fanout),
                    key=lambda point: point.spec.load,
                )
                x = [point.by_region[region] / 1e6 for point in line]
                y = [point.latency_ms[region] for point in line]
                axes.plot(x, y, color=_colour(fanout), marker=_mark(fanout))
                labels.append(Label(x[-1], y[-1], f"F={fanout}", _colour(fanout)))
            axes.axhline(300, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
            axes.set_title(f"Fig. 6: events from region {region}")
            axes.set_xlabel("million events/s of this region, average client")
            axes.set_ylabel("latency to the last client, ms")
            axes.set_ylim(bottom=0)
            axes.set_xlim(left=0)
            label_lines(axes, labels)


def draw_cut(line: Timeline, path: Path) -> None:
    steps = [(number + 0.5) * line.step_s for number in range(len(line.throughput))]
    with picture(path, panels=2, height=4.6) as (_, (throughput, latency)):
        throughput.plot(steps, [value / 1e6 for value in line.throughput], color=COLOURS[0])
        throughput.axhline(Phases(line).usual / 1e6, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        throughput.set_title("Fig. 7a: throughput, the link between 2 and 3 is out")
        throughput.set_ylabel("million events/s, average client")
        usual = Phases(line).usual / 1e6
        throughput.set_ylim(0.7 * usual, 1.2 * usual)
        labels = []
        for region, colour in (("0", COLOURS[0]), ("2", COLOURS[1])):
            values = line.latency_ms[region]
            latency.plot(steps, values, color=colour)
            labels.append(Label(steps[-1], values[-1], f"region {region}", colour))
        latency.set_title("Fig. 7b: latency of events by their region")
        latency.set_ylabel("latency to the last client, ms")
        latency.set_ylim(bottom=0)
        for axes in (throughput, latency):
            axes.axvspan(line.spec.cut_s, line.spec.heal_s, color="#f0e6dc", zorder=0)
            axes.set_xlabel("s")
        label_lines(latency, labels)
