"""`qanat pub`: publish lines from standard input, or made-up ones."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qanat.cli.lines import first, nobody_writes, pieces
from qanat.cli.main import OK
from qanat.cli.options import add_json, add_patience, whole
from qanat.cli.target import Target, add_target, find_target, reaching
from qanat.cli.unknown_streams import Missing, missing
from qanat.events.errors import LocalError, QanatError

if TYPE_CHECKING:
    from qanat.client import Client

EXAMPLES = """\
examples:
  echo hello | qanat pub greetings              one event per line
  tail -F app.log | qanat pub logs              each line as it comes
  echo 42 | qanat pub prices --key ACME         with a key
  qanat pub prices --key-field 1 < prices.csv   the first comma-separated field is the key
  qanat pub ticks --count 1000000 --size 10     made-up events, as fast as they go
  echo bye | qanat pub greetings --collects 'keep last 10'
                                                a garbage-collection event
  qanat pub prices --url qanat://10.0.0.5:7411,10.0.0.6:7411 < prices
                                                to the head of a region
  qanat pub orders --name importer < orders     run it again after a crash: it skips stored lines
"""

_PIECE = 10_000
_SIZE = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", help="name of the stream; a single server creates a new one and reports it")
    add_target(parser)
    add_patience(parser)
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", help="the key of every event")
    keys.add_argument("--key-field", type=whole, metavar="N", help="field number N of each line is the key")
    parser.add_argument(
        "--separator", default=",", help="separator of fields, for --key-field (default: a comma)"
    )
    parser.add_argument(
        "--count",
        type=whole,
        metavar="N",
        help="at most N lines; with --size, or without input, N made-up events",
    )
    parser.add_argument(
        "--size", type=whole, metavar="BYTES", help=f"size of made-up events (default {_SIZE})"
    )
    parser.add_argument(
        "--name",
        default="",
        help="publish as this source: a second run with the same input skips the lines that the"
        " first one stored",
    )
    parser.add_argument(
        "--collects", default="", metavar="PREDICATE", help="publish GC events with this predicate"
    )
    parser.add_argument(
        "--durability",
        choices=("always", "interval", "memory"),
        default="",
        help="durability of a new stream",
    )
    parser.add_argument("--create", action="store_true", help="create a new stream without a notice")
    add_json(parser, "end with one line of JSON")


def run(args: argparse.Namespace) -> int:
    from qanat.cli.publish_watch import PublishWatch
    from qanat.client import Client

    began = time.monotonic()
    published = low = last = 0
    target = find_target(args, args.stream)
    target.say(f"publishing to {args.stream} at")
    with (
        reaching(target),
        Client(target.url, name=args.name, durability=args.durability, patience=args.patience) as client,
        PublishWatch(target.url, args.stream) as watch,
    ):
        new = missing(client, args.stream)
        if new is not None and new.deployed:
            raise new.error(target, "")
        skip = client.stored(args.stream) if args.name else 0
        for piece in _events(args):
            fresh = piece[skip:]
            skip -= len(piece) - len(fresh)
            if fresh:
                try:
                    with watch.publishing():
                        begin, last = _publish(client, args, fresh)
                except QanatError:
                    _tell_before(args, published, low, last)
                    raise
                if new is not None and not args.create:
                    _tell_new(new, target)
                new = None
                low = low or begin
                published += len(fresh)
    if args.json:
        done = {"stream": args.stream, "published": published, "first": low, "last": last}
        print(json.dumps(done | {"server": target.as_json()}))
    else:
        where = f" ({low}..{last})" if published else ""
        if args.collects and published:
            print(
                f"the collected events become tombstones in the background (`qanat stream info"
                f" {args.stream}` shows progress); `qanat sub {args.stream} --alive` leaves them out at once",
                file=sys.stderr,
            )
        print(
            f"published {published:,} events to {args.stream}{where} in {time.monotonic() - began:.2f} s",
            file=sys.stderr,
        )
    return OK


def _tell_new(new: Missing, target: Target) -> None:
    """Reports a new stream once its first events are stored, so that a mistyped name does not go
    unnoticed."""
    said = f"qanat: {new.stream} is a new stream at {target.place}"
    print(f"{said}; {meant}" if (meant := new.meant()) else said, file=sys.stderr, flush=True)


def _tell_before(args: argparse.Namespace, published: int, low: int, last: int) -> None:
    """Reports the stored events before an error; further batches of the failed piece may be stored as
    well."""
    if published:
        print(
            f"published at least {published:,} events to {args.stream} ({low}..{last}), then:",
            file=sys.stderr,
            flush=True,
        )


def _publish(client: Client, args: argparse.Namespace, events: list[bytes]) -> tuple[int, int]:
    keys = _keys(events, args)
    if not args.collects:
        return client.publish_many(args.stream, events, keys=keys)
    numbers = [
        client.publish(args.stream, event, key=key, collects=args.collects)
        for event, key in zip(events, keys or [b""] * len(events), strict=True)
    ]
    return numbers[0], numbers[-1]


def _events(args: argparse.Namespace) -> Iterator[list[bytes]]:
    descriptor = sys.stdin.fileno()
    if args.count is None:
        return pieces(descriptor)
    if args.size is not None or nobody_writes(descriptor):
        return _made_up(args.count, args.size or _SIZE)
    return first(pieces(descriptor), args.count)


def _made_up(count: int, size: int) -> Iterator[list[bytes]]:
    event = (bytes(range(97, 123)) * (size // 26 + 1))[:size]
    for i in range(0, count, _PIECE):
        yield [event] * min(_PIECE, count - i)


def _keys(lines: list[bytes], args: argparse.Namespace) -> list[bytes] | None:
    if args.key is not None:
        return [args.key.encode()] * len(lines)
    if args.key_field is None:
        return None
    separator = args.separator.encode()
    fields = [line.split(separator) for line in lines]
    for line, parts in zip(lines, fields, strict=True):
        if len(parts) < args.key_field:
            raise LocalError(f"--key-field {args.key_field}: the line {line[:60]!r} has {len(parts)} fields")
    return [parts[args.key_field - 1] for parts in fields]
