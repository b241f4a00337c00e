"""`qanat demo`: watch events flow from a database through Spark to three regions while a link is cut and a
replica is killed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, TextIO

from qanat.cli.demo_display import Display
from qanat.cli.interruption import Interruption
from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.options import add_json, add_master, spark_settings, whole

if TYPE_CHECKING:
    from qanat.demonstration.run import Summary

EXAMPLES = """\
examples:
  qanat demo                  run it for twelve seconds
  qanat demo --seconds 60 --subscribers 3
  qanat demo --json | tail -1
  qanat demo --master spark://host:7077
        on another Spark, whose executors see this machine's folders and ports

An application writes orders and drafts to an embedded RocksDB. A Structured Streaming job on Spark reads
its log, drops the drafts, and routes the orders by shard into two streams of the first region; clients in
the other regions publish sales. A deployment of three regions with two replicas each, as `qanat up` starts
it, sends all events to subscribers in every region and into an archive of Parquet files. In the middle the
demo cuts and heals one link between regions, and kills and restarts the replica to which Spark publishes.
Each order and each sale has a number; subscribers check only these numbers for losses, duplicates and
order. They also record their deliveries, and at the end an audit compares the records with the archive.
The demo uses temporary folders and removes them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=whole, default=12, metavar="N", help="how long the application writes (default 12)"
    )
    parser.add_argument(
        "--subscribers", type=whole, default=1, metavar="N", help="subscribers in each region (default 1)"
    )
    add_master(parser, "local[4], four threads of this machine")
    add_json(parser, "end with one line of JSON; the rest goes to standard error")


def run(args: argparse.Namespace) -> int:
    import signal

    from qanat.demonstration.engine import MASTER
    from qanat.demonstration.run import play
    from qanat.operate.processes import end_processes
    from qanat.pipeline.session import SparkSettings, is_local

    master = spark_settings(args, SparkSettings(master=MASTER)).master
    where = "on this machine" if is_local(master) else f"at {master}"
    words = sys.stderr if args.json else sys.stdout
    print(
        f"starting three regions of two replicas each and a RocksDB on this machine, and Spark {where}",
        file=words,
        flush=True,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as Ctrl-C does: with nothing left
    began = time.monotonic()
    try:
        with Interruption(
            "stopping Spark, the regions and their clients, and removing their folders; Ctrl-C"
            " again ends at once and leaves folders",
            at_once=end_processes,
        ):
            with Display(words) as display:
                summary = play(
                    float(args.seconds), args.subscribers, display.show, display.say, master, display.doing
                )
    except KeyboardInterrupt:
        print(
            f"qanat: stopped the demonstration after {time.monotonic() - began:.0f} s; no processes"
            f" and no data are left",
            file=sys.stderr,
            flush=True,
        )
        raise
    _tell(summary, words)
    if args.json:
        print(json.dumps(summary._asdict()))
    return OK if summary.faultless else FOUND_WRONG


def _tell(summary: Summary, words: TextIO) -> None:
    where = ", ".join(f"{count:,} in {region}" for region, count in summary.published_in.items())
    print(
        f"\n{summary.written:,} writes to RocksDB, {summary.captured:,} captured by Spark; published {where}"
        f" (the rest of the writes were drafts); {summary.archived:,} archived; {summary.delivered:,}"
        f" delivered to {summary.subscribers} subscribers in three regions: {summary.lost} lost,"
        f" {summary.duplicated} duplicated, {summary.out_of_order} out of order",
        file=words,
    )
    late = "  ".join(
        f"{region} {found['p50']:.0f}/{found['p99']:.0f} ms" for region, found in summary.latency_ms.items()
    )
    verdict = {"pass": "proven", "fail": "REFUTED"}.get(summary.audit, "NOT PROVEN")
    print(
        f"audit of the recordings against the archive: {verdict}; from publishing to delivery (p50/p99):"
        f" {late}",
        file=words,
    )
    slowest = max(found["p99"] for found in summary.latency_ms.values())
    shown = ", which the p99 shows" if slowest > summary.takeover_ms / 3 else ""
    print(
        f"when {summary.killed} was killed, subscribers got no orders for up to {summary.takeover_ms:,.0f}"
        " ms: the next replica numbers them only after the dead one's connections broke and its"
        " port refuses, or its session ran out (session.timeout_ms). Events published meanwhile"
        f" came that late{shown}",
        file=words,
    )
    verdict = "every subscriber got every event once, in order" if summary.faultless else "THIS IS WRONG"
    print(f"{verdict}; no process is left", file=words)
