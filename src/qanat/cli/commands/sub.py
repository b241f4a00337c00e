"""`qanat sub`: print a stream's events as they come."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from typing import TYPE_CHECKING

from qanat.cli.main import OK
from qanat.cli.options import (
    add_json,
    add_master,
    add_patience,
    rate,
    starting_point,
    whole,
)
from qanat.cli.spark import started
from qanat.cli.target import Target, add_target, find_target, reaching
from qanat.cli.unknown_streams import missing
from qanat.events.errors import LocalError
from qanat.events.layout import Kind
from qanat.events.ranges import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qanat.client import BlockingSubscription, Client, Event
    from qanat.client.subscription import Where

EXAMPLES = """\
examples:
  qanat sub greetings                             from now on
  qanat sub greetings --from earliest --count 10  the first ten
  qanat sub prices --where "symbol = 'ACME' and price in 10..20"
  qanat sub prices --from earliest --alive        without what is collected, removed already or not
  qanat sub orders --from 10m --json              the last ten minutes, as JSON lines
  qanat sub orders --from 1042 --until-end        what is there from 1042 on, then stop
  qanat sub orders --url qanat://10.0.0.5:7411,10.0.0.6:7411
                                                  from a region's tail, whichever of its replicas that is
  qanat sub orders --from 1 --archive /data/archive
                                                  what servers no longer keep from the archive, then live
  qanat sub orders --from 1 --archive hdfs://host:9000/archive
                                                  likewise; such an archive is read through a Spark in this process
  qanat sub prices --via mesh  from other clients of the region, which get it from this one as well
  qanat sub orders --record deliveries --name till-3
                                                  write down what is printed, for `qanat audit`

Filters: docs/filters.md. Payloads are printed as they are; with --json those that are not UTF-8 are in
base64.
"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream")
    add_target(parser)
    add_patience(parser)
    parser.add_argument(
        "--from",
        dest="start",
        default="latest",
        metavar="WHERE",
        help="earliest, latest, a sequence number, a time, or an age as 10m (default: latest)",
    )
    parser.add_argument("--where", default="", metavar="FILTER", help="only events that pass")
    parser.add_argument(
        "--alive",
        action="store_true",
        help=(
            "leave out what GC events and the policy collect now, removed already or not, and tombstones;"
            " what comes later comes as it is"
        ),
    )
    parser.add_argument(
        "--via",
        choices=("server", "mesh"),
        default="server",
        help=(
            "who sends the events: the server, or once caught up the region's other clients (default: server)"
        ),
    )
    parser.add_argument(
        "--archive",
        metavar="PATH",
        help=(
            "where the stream is archived, a folder or hdfs://host:port/path: what the server no longer keeps"
            " comes from there"
        ),
    )
    parser.add_argument(
        "--rate",
        type=rate,
        default=0,
        metavar="BYTES",
        help="bytes per second from the archive at most, as 10M (default: no limit)",
    )
    add_master(parser)
    parser.add_argument("--count", type=whole, metavar="N", help="stop after N events")
    parser.add_argument("--until-end", action="store_true", help="stop at what is the stream's end now")
    parser.add_argument(
        "--record", metavar="FOLDER", help="write down there what was delivered, and when, for `qanat audit`"
    )
    parser.add_argument(
        "--name", default="", help="who this is; with --record, recordings of one name are of one subscriber"
    )
    parser.add_argument(
        "--create",
        action="store_true",
        help="make the stream if it is not there, and wait for its first event",
    )
    add_json(parser, "one JSON object per event")


def run(args: argparse.Namespace) -> int:
    from qanat.client import Client, EventsLost
    from qanat.events.event import events
    from qanat.events.filters import parse

    show = _as_json if args.json else _as_text
    left = args.count
    start = starting_point(args.start)
    if args.where:
        parse(args.where)
    target = find_target(args, args.stream)
    if args.alive and (args.archive or args.record or args.via != "server"):
        raise LocalError("--alive leaves events out: it goes without --archive, --record and --via mesh")
    spark = _session(args)
    target.say(f"reading {args.stream} from")
    with (
        reaching(target),
        Client(target.url, name=args.name, patience=args.patience, record=args.record) as client,
        _subscribe(client, args, start, target, spark) as source,
    ):
        if start != "latest" and not args.alive and args.archive is None:
            _tell_dead(client, args.stream)
        end = source.end
        while not (args.until_end and source.next >= end):
            try:
                batches = source.take(timeout_s=1.0 if args.until_end else None)
            except EventsLost as lost:
                print(f"qanat: {lost}", file=sys.stderr)
                continue
            for batch in batches:
                for event in events(batch):
                    if args.until_end and event.seq >= end:
                        return OK
                    print(show(event))
                    if left is not None:
                        left -= 1
                        if not left:
                            return OK
            sys.stdout.flush()
    return OK


def _tell_dead(client: Client, stream: str) -> None:
    """Why events come that something has collected."""
    from qanat.client import ServerRefused

    try:
        found = client.stream_info(stream)["collection"]
    except ServerRefused:  # an older server does not tell
        return
    dead, looking = found["dead_events"], found["predicates"]
    if dead or looking:
        many = f"{dead:,} events of {stream} are" if dead != 1 else f"an event of {stream} is"
        what = f"{many} collected by GC events or the policy" if dead else ""
        more = f"{looking:,} GC events still look for what they match" if looking else ""
        print(
            f"qanat: {' and '.join(filter(None, (what, more)))}: readers get these until their files are"
            f" rewritten in the background (`qanat stream info {stream}` says when); --alive leaves them out",
            file=sys.stderr,
            flush=True,
        )


def _session(args: argparse.Namespace) -> SparkSession | None:
    """What an archive on HDFS is read through; a folder of this machine needs no Spark."""
    if args.archive is None:
        if args.rate:
            raise LocalError("--rate limits what comes from an archive: say which with --archive")
        if args.master:
            raise LocalError("--master is for an archive on HDFS: say which with --archive")
        return None
    from qanat.pipeline.archive.storage import needs_spark

    if not needs_spark(args.archive):
        return None
    from qanat.cli.under_way import UnderWay

    with UnderWay() as under:
        return started(args, None, "qanat sub", under)


def _subscribe(
    client: Client, args: argparse.Namespace, start: Where, target: Target, spark: SparkSession | None
) -> BlockingSubscription:
    if args.archive is None:
        absent = missing(client, args.stream)
        if absent is not None and (absent.deployed or not args.create):
            raise absent.error(target, "--create makes it and waits for its first event")
        return client.subscribe(args.stream, start=start, where=args.where, via=args.via, alive=args.alive)
    from qanat.pipeline.replay.settings import ReplaySettings
    from qanat.pipeline.replay.subscription import Replay

    settings = ReplaySettings(rate_bytes_per_s=args.rate)
    return Replay(
        client,
        args.archive,
        args.stream,
        start=start,
        where=args.where,
        via=args.via,
        settings=settings,
        spark=spark,
    )


def _as_text(event: Event) -> str:
    if event.kind is Kind.TOMBSTONE:
        return f"{event.seq - event.range + 1}..{event.seq} collected"
    parts = [str(event.seq)]
    if event.key:
        parts.append(event.key.decode("utf-8", "backslashreplace"))
    parts.append(event.payload.decode("utf-8", "backslashreplace"))
    if event.attributes:
        parts.append(" ".join(f"{name}={value!r}" for name, value in event.attributes.items()))
    return "\t".join(map(printable, parts))


def _as_json(event: Event) -> str:
    if event.kind is Kind.TOMBSTONE:
        return json.dumps({"seq": event.seq, "kind": "tombstone", "range": event.range})
    row: dict[str, object] = {"seq": event.seq, "kind": event.kind.name.lower(), "time_us": event.time_us}
    row |= _text("key", event.key) if event.key else {}
    row |= _text("payload", event.payload)
    if event.attributes:
        row["attributes"] = {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in event.attributes.items()
        }
    return printable(json.dumps(row, ensure_ascii=False))


def _text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
