"""Who was recorded: files become runs, runs become subscribers that were started again; and what each run is
answerable for."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from qanat.client.record_format import Heading
from qanat.pipeline.archive.manifest import Range


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one file of a recording says about itself."""

    path: str
    heading: Heading
    high: int
    """The highest number that it hands over; 0 if none."""
    reach: int
    """The last number that was handed over, did not pass, or was lost; 0 if it says nothing."""
    entries: int
    ended: bool
    """Whether its last entry is a peaceful end."""
    torn_bytes: int


class Run(NamedTuple):
    """One life of a subscription."""

    number: int
    """Among all runs of the audit."""
    subscriber: int
    heading: Heading
    highs: tuple[int, ...]
    """Before each of its parts, the highest number that had been handed over."""
    reach: int
    first: int
    """What it is answerable for begins here: where it began, or earlier if the run before it ended
    earlier."""
    skipped: int
    """Numbers between the runs that the subscriber chose not to see, by starting at `latest` or at a time."""
    ended: bool
    torn_bytes: int


class Subscriber(NamedTuple):
    """All runs of one name, stream and filter."""

    number: int
    name: str
    stream: str
    where: str
    runs: tuple[Run, ...]

    @property
    def reach(self) -> int:
        return max(run.reach for run in self.runs)

    @property
    def first(self) -> int:
        return min(run.first for run in self.runs)


class Incomplete(NamedTuple):
    """A recording of which files are missing."""

    run: str
    subscriber: str
    sentence: str


def gather(parts: Iterable[Part]) -> tuple[list[Subscriber], list[Incomplete]]:
    """Subscribers by name, stream and filter, their runs by when they began."""
    by_run: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_run[part.heading.run].append(part)
    lives: dict[tuple[str, str, str], list[list[Part]]] = defaultdict(list)
    broken = []
    for run, files in by_run.items():
        files.sort(key=lambda part: part.heading.part)
        numbers = [part.heading.part for part in files]
        heading = files[0].heading
        if numbers != list(range(len(files))):
            missing = sorted(set(range(numbers[-1] + 1)) - set(numbers))
            sentence = f"of its recording {heading.began_us}-{run[:12]} the files {missing} are missing"
            broken.append(Incomplete(run, heading.subscriber, sentence))
            continue
        lives[heading.subscriber, heading.stream, heading.where].append(files)
    subscribers: list[Subscriber] = []
    count = 0
    for (name, stream, where), recordings in sorted(lives.items()):
        recordings.sort(key=lambda files: (files[0].heading.began_us, files[0].heading.run))
        runs = _runs(recordings, len(subscribers), count)
        count += len(runs)
        subscribers.append(Subscriber(len(subscribers), name, stream, where, runs))
    return subscribers, broken


def _runs(recordings: Sequence[list[Part]], subscriber: int, number: int) -> tuple[Run, ...]:
    runs: list[Run] = []
    before = 0
    for files in recordings:
        heading = files[0].heading
        high, highs = heading.first - 1, []
        for part in files:
            highs.append(high)
            high = max(high, part.high)
        reach = max([high, *(part.reach for part in files)])
        first, skipped = heading.first, 0
        if before and heading.first > before + 1:
            if heading.start.isdigit():
                first = before + 1  # it went on further than it was: what lies between was never handed over
            else:
                skipped = heading.first - before - 1
        torn = sum(part.torn_bytes for part in files)
        runs.append(
            Run(number, subscriber, heading, tuple(highs), reach, first, skipped, files[-1].ended, torn)
        )
        number += 1
        before = max(before, reach)
    return tuple(runs)


def outside(first: int, last: int, complete: Sequence[Range]) -> list[Range]:
    """What of first..last is in none of the rising ranges."""
    left, at = [], first
    for have in complete:
        if have.last < at:
            continue
        if have.first > last:
            break
        if have.first > at:
            left.append(Range(at, have.first - 1))
        at = have.last + 1
    if at <= last:
        left.append(Range(at, last))
    return left
