"""`qanat sub`: print a stream's events as they arrive."""

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
  qanat sub prices --from earliest --alive        without garbage, removed already or not
  qanat sub orders --from 10m --json              the last ten minutes, as JSON lines
  qanat sub orders --from 1042 --until-end        from 1042 to the present end, then stop
  qanat sub orders --url qanat://10.0.0.5:7411,10.0.0.6:7411
                                                  from the tail of a region
  qanat sub orders --from 1 --archive /data/archive
                                                  dropped events from the archive, then live ones
  qanat sub orders --from 1 --archive hdfs://host:9000/archive
                                                  the same; a Spark in this process reads the archive
  qanat sub prices --via mesh                     from and to other clients of the region
  qanat sub orders --record deliveries --name till-3
                                                  record the deliveries for `qanat audit`

Filters: docs/filters.md. Payloads are printed unchanged; with --json those that are not UTF-8 are in
base64.
"""


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
    parser.add_argument("--where", default="", metavar="FILTER", help="only events that pass this filter")
    parser.add_argument(
        "--alive",
        action="store_true",
        help=(
            "leave out tombstones and all events that GC events and the policy have collected,"
            " removed already or not; later events arrive unfiltered"
        ),
    )
    parser.add_argument(
        "--via",
        choices=("server", "mesh"),
        default="server",
        help=(
            "the source of the events: the server, or after catching up the region's other clients"
            " (default: server)"
        ),
    )
    parser.add_argument(
        "--archive",
        metavar="PATH",
        help=(
            "the stream's archive, a folder or hdfs://host:port/path: it supplies the events that"
            " the server no longer has"
        ),
    )
    parser.add_argument(
        "--rate",
        type=rate,
        default=0,
        metavar="BYTES",
        help="most bytes per second from the archive, as 10M (default: no limit)",
    )
    add_master(parser)
    parser.add_argument("--count", type=whole, metavar="N", help="stop after N events")
    parser.add_argument("--until-end", action="store_true", help="stop at the stream's present end")
    parser.add_argument(
        "--record",
        metavar="FOLDER",
        help="record deliveries and their times in this folder, for `qanat audit`",
    )
    parser.add_argument(
        "--name",
        default="",
        help="name of this subscriber; with --record, recordings of one name belong to one subscriber",
    )
    parser.add_argument(
        "--create",
        action="store_true",
        help="create the stream if it does not exist, and wait for its first event",
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
        raise LocalError("--alive leaves events out, so it excludes --archive, --record and --via mesh")
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
    """Explains why collected events still arrive."""
    from qanat.client import ServerRefused

    try:
        found = client.stream_info(stream)["collection"]
    except ServerRefused:  # an older server does not tell
        return
    dead, looking = found["dead_events"], found["predicates"]
    if dead or looking:
        many = f"{dead:,} events of {stream} are" if dead != 1 else f"an event of {stream} is"
        what = f"{many} collected by GC events or the policy" if dead else ""
        more = f"{looking:,} GC events still search for their matches" if looking else ""
        print(
            f"qanat: {' and '.join(filter(None, (what, more)))}: readers get these until the server"
            f" rewrites their files (`qanat stream info {stream}` shows when); --alive leaves them out",
            file=sys.stderr,
            flush=True,
        )


def _session(args: argparse.Namespace) -> SparkSession | None:
    """The session that reads an archive on HDFS; a folder of this machine needs no Spark."""
    if args.archive is None:
        if args.rate:
            raise LocalError("--rate limits reads of an archive: name one with --archive")
        if args.master:
            raise LocalError("--master is for an archive on HDFS: name one with --archive")
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
            raise absent.error(target, "--create creates it and waits for its first event")
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
