"""`qanat replay`: publish archived events again, into another stream."""

from __future__ import annotations

import argparse
import json
import signal
from typing import TYPE_CHECKING

from qanat.cli.main import OK
from qanat.cli.options import add_json, add_master, rate, spark_settings, whole
from qanat.cli.target import add_target, find_target

if TYPE_CHECKING:
    from qanat.pipeline.replay.settings import ReplayJobSettings

EXAMPLES = """\
examples:
  qanat replay /data/archive orders --into orders-again
  qanat replay /data/archive orders --into late --from 1000 --to 5000 --where "region = 'eu'"
  qanat replay /data/archive orders --into orders-again --rate 10M
  qanat replay /data/archive orders --into orders-again --config job.toml
                                    kill -HUP changes the rate to what the file says then

Killed and started again with the same --from and --where, it goes on where it was. A subscriber needs no such
copy: qanat sub --archive.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the archive: a folder, or hdfs://host:port/path")
    parser.add_argument("stream", help="whose archived events")
    parser.add_argument("--into", required=True, metavar="STREAM", help="where they are published")
    add_target(parser)
    parser.add_argument(
        "--from", dest="first", type=whole, metavar="N", help="from this sequence number on (default: all)"
    )
    parser.add_argument(
        "--to", dest="last", type=whole, metavar="N", help="up to this sequence number (default: all)"
    )
    parser.add_argument("--where", default="", metavar="FILTER", help="only events that pass")
    parser.add_argument(
        "--rate", type=rate, metavar="BYTES", help="bytes per second at most, as 10M (default: no limit)"
    )
    parser.add_argument("--skip-gc", action="store_true", help="without garbage-collection events")
    parser.add_argument("--config", metavar="FILE", help="settings, as [replay] rate_bytes_per_s = 10000000")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as spark.cores=2"
    )
    add_master(parser)
    add_json(parser, "one JSON object for each part that was published")


def run(args: argparse.Namespace) -> int:
    from qanat.pipeline.replay.republish import Republisher
    from qanat.pipeline.session import open_session

    settings = _settings(args)
    target = find_target(args, args.into)
    target.say(f"publishing {args.stream} into {args.into} at")
    spark = open_session(spark_settings(args, settings.spark), "qanat replay")
    job = Republisher(
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

    def change(*_: object) -> None:
        job.rate = _settings(args).replay.rate_bytes_per_s

    signal.signal(signal.SIGHUP, change)
    events = 0
    for part in job.run():
        events += part.events
        if args.json:
            print(json.dumps(part._asdict()), flush=True)
        else:
            print(f"{part.first}..{part.last}: {part.events:,} new events, {part.bytes:,} bytes", flush=True)
    if not args.json:
        print(
            f"{args.into} has {args.stream} from {job.range.first} to {job.range.last}; {events:,} events were new"
        )
    return OK


def _settings(args: argparse.Namespace) -> ReplayJobSettings:
    from qanat.pipeline.replay.settings import ReplayJobSettings
    from qanat.runtime.config import load

    flags = list(args.set)
    if args.rate is not None:
        flags.append(f"replay.rate_bytes_per_s={args.rate}")
    return load(ReplayJobSettings, file=args.config, flags=flags)[0]
