"""`qanat replay`: publish archived events again, into another stream."""

from __future__ import annotations

import argparse
import json
import signal
from typing import TYPE_CHECKING

from qanat.cli.main import OK
from qanat.cli.options import add_json, add_master, rate, whole
from qanat.cli.spark import started
from qanat.cli.target import Target, add_target, find_target
from qanat.cli.under_way import UnderWay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qanat.pipeline.replay.republish import Republisher
    from qanat.pipeline.replay.settings import ReplayJobSettings

EXAMPLES = """\
examples:
  qanat replay /data/archive orders --into orders-again
  qanat replay /data/archive orders --into late --from 1000 --to 5000 --where "region = 'eu'"
  qanat replay /data/archive orders --into orders-again --rate 10M
  qanat replay /data/archive orders --into orders-again --config job.toml
                                    kill -HUP reads the rate from the file again

This process reads up to 256 MiB of an archive in a folder; Spark reads more, or with --master, --config or
--set. After a crash start it again with the same --from and --where: it resumes where it stopped. A
subscriber needs no such copy: use qanat sub --archive.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the archive: a folder, or hdfs://host:port/path")
    parser.add_argument("stream", help="the archived stream")
    parser.add_argument("--into", required=True, metavar="STREAM", help="the stream to publish into")
    add_target(parser)
    parser.add_argument(
        "--from", dest="first", type=whole, metavar="N", help="first sequence number (default: the first)"
    )
    parser.add_argument(
        "--to", dest="last", type=whole, metavar="N", help="last sequence number (default: the last)"
    )
    parser.add_argument("--where", default="", metavar="FILTER", help="only events that pass this filter")
    parser.add_argument(
        "--rate", type=rate, metavar="BYTES", help="most bytes per second, as 10M (default: no limit)"
    )
    parser.add_argument("--skip-gc", action="store_true", help="leave out garbage-collection events")
    parser.add_argument("--config", metavar="FILE", help="settings, as [replay] rate_bytes_per_s = 10000000")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as spark.cores=2"
    )
    add_master(parser)
    add_json(parser, "one JSON object for each published part")


def run(args: argparse.Namespace) -> int:
    from qanat.pipeline.archive.storage import needs_spark
    from qanat.pipeline.replay.republish import SMALL_BYTES, Republisher

    settings = _settings(args)
    target = find_target(args, args.into)
    target.say(f"publishing {args.stream} into {args.into} at")
    with UnderWay() as under:

        def job_on(spark: SparkSession | None) -> Republisher:
            return Republisher(
                spark,
                args.path,
                args.stream,
                args.into,
                url=target.url,
                first=args.first,
                last=args.last,
                where=args.where,
                skip_gc=args.skip_gc,
                settings=settings.replay,
            )

        under.say(f"reading the manifest of {args.path}")
        job = None if needs_spark(args.path) else job_on(None)  # report a mistake before Spark starts
        chosen = bool(args.master or args.config or args.set)
        if job is None or chosen or job.bytes > SMALL_BYTES:
            _reach(target, under)
            job = job_on(started(args, settings.spark, "qanat replay", under))

        def change(*_: object) -> None:
            job.rate = _settings(args).replay.rate_bytes_per_s

        signal.signal(signal.SIGHUP, change)
        return _publish(args, job, under)


def _reach(target: Target, under: UnderWay) -> None:
    """Waits for a server before Spark starts."""
    from qanat.client import Client

    under.say(f"asking {target.url}")
    Client(target.url).close()


def _publish(args: argparse.Namespace, job: Republisher, under: UnderWay) -> int:
    events, reached, total = 0, job.range.first - 1, job.range.last - job.range.first + 1
    began_at = job.range.first - 1
    under.say(
        f"publishing {total:,} numbers of {args.stream} into {args.into}",
        lambda: f"{reached - began_at:,} done",
    )
    for part in job.run():
        events, reached = events + part.events, part.last
        under.print(
            json.dumps(part._asdict())
            if args.json
            else f"{part.first}..{part.last}: {part.events:,} new events, {part.bytes:,} bytes"
        )
    under.done()
    if not args.json:
        print(
            f"{args.into} has {args.stream} from {job.range.first} to {job.range.last}; published"
            f" {events:,} new events"
        )
    return OK


def _settings(args: argparse.Namespace) -> ReplayJobSettings:
    from qanat.pipeline.replay.settings import ReplayJobSettings
    from qanat.runtime.config import load

    flags = list(args.set)
    if args.rate is not None:
        flags.append(f"replay.rate_bytes_per_s={args.rate}")
    return load(ReplayJobSettings, file=args.config, flags=flags)[0]
