"""`qanat demo`: watch events flow between three regions while a link is cut and a replica is killed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.options import add_json, whole
from qanat.cli.tables import table

if TYPE_CHECKING:
    from qanat.studies.demo import Progress, Summary

EXAMPLES = """\
examples:
  qanat demo                  twelve seconds of it
  qanat demo --seconds 60 --subscribers 3
  qanat demo --json | tail -1

A deployment of three regions with two replicas each, as `qanat up` starts it, in a temporary folder. In every region one
producer publishes to the region's own stream and subscribers read all three. In the middle one link between regions is cut
and heals, and the head of one region is killed and comes back. Each event carries its producer's number and a counter; the
subscribers check these, and nothing else, for losses, duplicates and order. Everything is gone at the end.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=whole, default=12, metavar="N", help="how long to publish (default 12)"
    )
    parser.add_argument(
        "--subscribers", type=whole, default=1, metavar="N", help="in each region (default 1)"
    )
    add_json(parser, "end with one line of JSON; the rest goes to stderr")


def run(args: argparse.Namespace) -> int:
    import signal

    from qanat.studies.demo import play

    words = sys.stderr if args.json else sys.stdout
    print("starting three regions of two replicas each on this machine", file=words, flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as Ctrl-C does: with nothing left
    with _display(words) as (show, say):
        summary = play(float(args.seconds), args.subscribers, show, say)
    _tell(summary, words)
    if args.json:
        print(json.dumps(summary._asdict()))
    return OK if summary.faultless else FOUND_WRONG


def _tell(summary: Summary, words: TextIO) -> None:
    print(
        f"\n{summary.published:,} events published in three regions, {summary.delivered:,} delivered to"
        f" {summary.subscribers} subscribers: {summary.lost} lost, {summary.duplicated} duplicated,"
        f" {summary.out_of_order} out of order",
        file=words,
    )
    verdict = "every subscriber got every event once, in order" if summary.faultless else "THIS IS WRONG"
    print(f"{verdict}; nothing is left running", file=words)


_HEADS = ["published", "events/s", "received", "events/s", "behind", "latency"]


def _rows(progress: Progress, before: Progress | None) -> list[list[object]]:
    """One line per region: what its producer published, what its subscribers got, how far behind and how late they are."""
    seconds = progress.seconds - (before.seconds if before else 0.0)
    total = sum(progress.published) * progress.subscribers

    def rate(now: int, then: int) -> int:
        return int((now - then) / seconds) if seconds > 0 else 0

    return [
        [
            region,
            progress.published[i],
            rate(progress.published[i], before.published[i] if before else 0),
            progress.delivered[i],
            rate(progress.delivered[i], before.delivered[i] if before else 0),
            max(0, total - progress.delivered[i]),
            f"{progress.latency_ms[i]:.1f} ms",
        ]
        for i, region in enumerate(progress.regions)
    ]


@contextmanager
def _display(words: TextIO) -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """A table that changes in place on a terminal, with the news above it; elsewhere a line per second."""
    before: Progress | None = None
    if not words.isatty():

        def line(progress: Progress) -> None:
            nonlocal before
            if before is not None and progress.seconds - before.seconds < 1:
                return
            rows = _rows(progress, before)
            published = sum(int(str(row[2])) for row in rows)
            received = "  ".join(f"{row[0]} {row[4]:>7,}/s {row[5]:>6,} behind" for row in rows)
            print(
                f"{progress.seconds:5.1f} s  {published:>7,} events/s published;  {received}",
                file=words,
                flush=True,
            )
            before = progress

        yield line, lambda text: print(text, file=words, flush=True)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(file=words), refresh_per_second=5) as live:

        def picture(progress: Progress) -> None:
            nonlocal before
            live.update(Text(table([f"{progress.seconds:.1f} s", *_HEADS], _rows(progress, before))))
            if before is None or progress.seconds - before.seconds >= 1:
                before = progress

        yield picture, lambda text: live.console.print(Text(text))
