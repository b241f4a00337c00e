"""The two measurements of section 5.4: events stored against events generated, and invalidations against
age."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from qanat.events.errors import InvariantError
from qanat.studies.registry import Say
from qanat.studies.s14.popularity import Ints
from qanat.studies.s14.storage import CountedStorage, LogStorage
from qanat.studies.s14.workload import CHUNK, Events, Floats, Model, events

FIRST = 1000
"""Events at a curve's first point; below it chance has too much to say."""
PER_DECADE = 8


class Curve(NamedTuple):
    """Events stored when so many were generated; up to `log_upto` events the log itself was asked."""

    model: Model
    generated: Ints
    stored: Ints
    log_upto: int

    @property
    def kept(self) -> Floats:
        return np.asarray(self.stored / self.generated, np.float64)

    def kept_at(self, generated: float) -> float:
        """The fraction kept after so many events, between two points by a straight line on log-log paper."""
        return float(np.exp(np.interp(np.log(generated), np.log(self.generated), np.log(self.kept))))

    def generated_at(self, kept: float) -> float | None:
        """How many events there are when the fraction kept falls to this; None if that is not within the
        curve."""
        low, high = float(self.kept.min()), float(self.kept.max())
        if not low <= kept <= high:
            return None
        falling = np.minimum.accumulate(self.kept)
        return float(np.exp(np.interp(-np.log(kept), -np.log(falling), np.log(self.generated))))


class Ages(NamedTuple):
    """Invalidations per tick of age: means over bins of ages that are equally wide on log paper."""

    model: Model
    age: Floats
    invalidations: Floats

    @property
    def slope(self) -> float:
        """Of the straight line through the points on log-log paper."""
        return float(np.polyfit(np.log(self.age), np.log(self.invalidations), 1)[0])

    @property
    def straightness(self) -> float:
        """R² of that line: 1 if the points are a power law, a Zipf distribution's shape."""
        return float(np.corrcoef(np.log(self.age), np.log(self.invalidations))[0, 1] ** 2)


def points(last: int) -> Ints:
    """Where a curve is measured: equally far apart on log paper, up to `last`."""
    first = min(FIRST, last)
    count = max(2, round(np.log10(last / first) * PER_DECADE) + 1) if last > first else 1
    return np.unique(np.rint(np.geomspace(first, last, count)).astype(np.int64))


def storage_curve(
    model: Model, seed: int, *, upto: int, log_upto: int, say: Say, chunk: int | None = None
) -> Curve:
    """Runs a workload through the log and through the counter, which must agree at every point.

    Beyond `log_upto` the counter goes on alone. What the log holds there is also read back and counted.
    """
    at = points(upto)
    log_points = at[at <= log_upto]
    log: LogStorage | None = LogStorage(log_upto) if len(log_points) else None
    log_last = int(log_points[-1]) if len(log_points) else 0
    counted = CountedStorage()
    stored: list[int] = []
    try:
        for generated, keys, is_point in cut(
            events(model, seed, chunk=chunk or chunk_for(upto), timed=False), at
        ):
            counted.add(keys)
            if log is not None and generated <= log_last:
                log.add(keys)
            if not is_point:
                continue
            stored.append(counted.kept())
            if log is not None and generated <= log_last:
                agree(generated, stored[-1], log.kept())
            if log is not None and generated == log_last:
                agree(generated, stored[-1], log.read_back())
                log.close()
                log = None
            tell(say, at, stored)
    finally:
        if log is not None:
            log.close()
    return Curve(model, at, np.array(stored, np.int64), log_last)


def tell(say: Say, at: Ints, stored: Sequence[int]) -> None:
    """Says what was stored at the last point that was reached, if people would like to hear of it."""
    generated = int(at[len(stored) - 1])
    if len(stored) % PER_DECADE == 1 or len(stored) == len(at) or generated > 10_000_000:
        say(f"{generated:>13,} events: {100 * stored[-1] / generated:6.2f} % kept")


def logged(model: Model, seed: int, at: Ints, *, chunk: int) -> tuple[list[int], int]:
    """What the log alone keeps at these points, and how much a new reader gets at the last one."""
    log, kept = LogStorage(int(at[-1])), []
    try:
        for _, keys, is_point in cut(events(model, seed, chunk=chunk, timed=False), at):
            log.add(keys)
            if is_point:
                kept.append(log.kept())
        return kept, log.read_back()
    finally:
        log.close()


def cut(stream: Iterator[Events], at: Ints, done: int = 0) -> Iterator[tuple[int, Ints, bool]]:
    """(events so far, keys of the piece, whether a point is reached): pieces end at chunks' ends and at
    points.

    `done` events came before the stream.
    """
    for chunk in stream:
        keys = chunk.keys
        inside = at[(at > done) & (at <= done + len(keys))] - done
        for piece in np.split(keys, inside):
            done += len(piece)
            yield done, piece, bool((at == done).any()) and len(piece) > 0
            if done == at[-1]:
                return


def chunk_for(arrivals: int) -> int:
    """A small run draws no more than it needs."""
    return CHUNK if arrivals > CHUNK // 2 else max(1, arrivals)


def agree(generated: int, counted: int, stored: int) -> None:
    if counted != stored:
        raise InvariantError(
            f"after {generated} events with {counted} distinct keys the log holds {stored} live events"
        )


def age_curve(model: Model, seed: int, *, ticks: int, age_max: int, chunk: int | None = None) -> Ages:
    """Invalidations of keys that came during the run, by how many ticks ago they came (1 = within the last
    tick)."""
    by_age = np.zeros(age_max + 2, np.int64)
    for run in events(model, seed, chunk=chunk or chunk_for(arrivals_in(model, ticks))):
        within = (run.ticks <= ticks) & np.isfinite(run.born)
        age = np.ceil(run.ticks[within] - run.born[within]).astype(np.int64)
        by_age += np.bincount(np.clip(age, 1, age_max + 1), minlength=age_max + 2)
        if run.ticks[-1] > ticks:
            break
    return ages_of(model, by_age, age_max)


def arrivals_in(model: Model, ticks: int) -> int:
    """How many arrivals so many ticks have, about."""
    return round(ticks * (model.rate + model.new_rate))


def ages_of(model: Model, by_age: Ints, age_max: int) -> Ages:
    """Counts by ticks of age (the last one: all that are older) as means over bins."""
    edges = np.unique(np.rint(np.geomspace(1, age_max + 1, PER_DECADE * 4)).astype(np.int64))
    sums = np.add.reduceat(by_age[: age_max + 1], edges[:-1])
    widths = np.diff(edges)
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    seen = sums > 0
    return Ages(model, middle[seen], (sums / widths)[seen])
