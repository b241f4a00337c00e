"""`qanat demo`: watch events flow from producers through a durable server to subscribers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.options import whole
from qanat.cli.tables import table

if TYPE_CHECKING:
    from qanat.studies.demo import Progress, Summary

EXAMPLES = """\
examples:
  qanat demo                  ten seconds of it
  qanat demo --seconds 60
  qanat demo --json | tail -1

A stream server with its log on disk, three producers and four subscribers run as processes of their own on this
machine. The last subscriber comes in the middle and reads from the beginning. Each event carries its producer's number
and counter; the subscribers check these, and nothing else, for losses, duplicates and order. Everything is gone at the end.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=whole, default=10, metavar="N", help="how long to publish (default 10)"
    )
    parser.add_argument("--producers", type=whole, default=3, metavar="N", help="default 3")
    parser.add_argument("--subscribers", type=whole, default=4, metavar="N", help="default 4")
    parser.add_argument(
        "--json", action="store_true", help="end with one line of JSON; the rest goes to stderr"
    )


def run(args: argparse.Namespace) -> int:
    from qanat.studies.demo import play

    words = sys.stderr if args.json else sys.stdout
    print(
        f"starting a stream server, {args.producers} producers and {args.subscribers} subscribers on this machine",
        file=words,
        flush=True,
    )
    with _display(words) as show:
        summary = play(float(args.seconds), args.producers, args.subscribers, show)
    _tell(summary, words)
    if args.json:
        print(json.dumps(summary._asdict()))
    return OK if summary.faultless else FOUND_WRONG


def _tell(summary: Summary, words: TextIO) -> None:
    print(
        f"\n{summary.published:,} events published, {summary.delivered:,} delivered to {summary.subscribers} subscribers:"
        f" {summary.lost} lost, {summary.duplicated} duplicated, {summary.out_of_order} out of order",
        file=words,
    )
    verdict = "every subscriber got every event once, in order" if summary.faultless else "THIS IS WRONG"
    print(f"{verdict}; nothing is left running", file=words)


def _rows(progress: Progress, before: Progress | None) -> list[list[object]]:
    """One line per process: total, rate since the last look, how far behind, how late."""
    seconds = progress.seconds - (before.seconds if before else 0.0)
    total = sum(progress.published)

    def rate(now: int, then: int) -> int:
        return int((now - then) / seconds) if seconds > 0 else 0

    rows: list[list[object]] = [
        [f"producer {i + 1}", count, rate(count, before.published[i] if before else 0), "", ""]
        for i, count in enumerate(progress.published)
    ]
    for i, count in enumerate(progress.delivered):
        name = f"subscriber {i + 1}" + (" (late)" if i == len(progress.delivered) - 1 else "")
        if i >= progress.present:
            rows.append([name, "not here yet", "", "", ""])
            continue
        was = before.delivered[i] if before else 0
        rows.append(
            [name, count, rate(count, was), max(0, total - count), f"{progress.latency_ms[i]:.1f} ms"]
        )
    return rows


_HEADS = ["", "events", "events/s", "behind", "latency"]


@contextmanager
def _display(words: TextIO) -> Iterator[Callable[[Progress], None]]:
    """A table that changes in place on a terminal; elsewhere a line per second."""
    before: Progress | None = None
    if not words.isatty():

        def line(progress: Progress) -> None:
            nonlocal before
            if before is not None and progress.seconds - before.seconds < 1:
                return
            rows = [row for row in _rows(progress, before) if row[2] != ""]
            published = sum(int(str(row[2])) for row in rows if row[3] == "")
            delivered = sum(int(str(row[2])) for row in rows if row[3] != "")
            lag = max(int(str(row[3])) for row in rows if row[3] != "")
            print(
                f"{progress.seconds:5.1f} s  {published:>9,} events/s published  {delivered:>10,} events/s delivered"
                f"  slowest {lag:,} behind",
                file=words,
                flush=True,
            )
            before = progress._replace(published=list(progress.published), delivered=list(progress.delivered))

        yield line
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(file=words), refresh_per_second=5) as live:

        def picture(progress: Progress) -> None:
            nonlocal before
            heads = [f"{progress.seconds:.1f} s", *_HEADS[1:]]
            live.update(Text(table(heads, _rows(progress, before))))
            if before is None or progress.seconds - before.seconds >= 1:
                before = progress._replace(
                    published=list(progress.published), delivered=list(progress.delivered)
                )

        yield picture
