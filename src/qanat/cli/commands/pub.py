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
  tail -F app.log | qanat pub logs              as lines come
  echo 42 | qanat pub prices --key ACME         with a key
  qanat pub prices --key-field 1 < prices.csv   the first comma-separated field is the key
  qanat pub ticks --count 1000000 --size 10     made-up events, as fast as they go
  echo bye | qanat pub greetings --collects 'keep last 10'
                                                a garbage-collection event
  qanat pub prices --url qanat://10.0.0.5:7411,10.0.0.6:7411 < prices
                                                to a region's head, whichever of its replicas that is
  qanat pub orders --name importer < orders     run again after a crash: what was stored is skipped
"""

_PIECE = 10_000
_SIZE = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", help="its name; a server alone makes a new one, and says so")
    add_target(parser)
    add_patience(parser)
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--key", help="the key of every event")
    keys.add_argument(
        "--key-field", type=whole, metavar="N", help="the N-th field of each line is its event's key"
    )
    parser.add_argument("--separator", default=",", help="between fields, for --key-field (default: a comma)")
    parser.add_argument(
        "--count",
        type=whole,
        metavar="N",
        help="at most N lines; N made-up events if --size is given or nothing is piped in",
    )
    parser.add_argument("--size", type=whole, metavar="BYTES", help=f"of made-up events (default {_SIZE})")
    parser.add_argument(
        "--name",
        default="",
        help="publish as this source: a second run with the same input skips what the first one stored",
    )
    parser.add_argument(
        "--collects", default="", metavar="PREDICATE", help="each is a GC event with this predicate"
    )
    parser.add_argument(
        "--durability",
        choices=("always", "interval", "memory"),
        default="",
        help="of the stream, if it is new",
    )
    parser.add_argument("--create", action="store_true", help="the stream may be new: say nothing of that")
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
                f"what they collect becomes tombstones in the background (`qanat stream info {args.stream}`"
                f" tells); `qanat sub {args.stream} --alive` leaves it out at once",
                file=sys.stderr,
            )
        print(
            f"published {published:,} events to {args.stream}{where} in {time.monotonic() - began:.2f} s",
            file=sys.stderr,
        )
    return OK


def _tell_new(new: Missing, target: Target) -> None:
    """After the first events are stored, which is when it was made: a name with a mistake in it shall not go
    unseen."""
    said = f"qanat: {new.stream} is a new stream at {target.place}"
    print(f"{said}; {meant}" if (meant := new.meant()) else said, file=sys.stderr, flush=True)


def _tell_before(args: argparse.Namespace, published: int, low: int, last: int) -> None:
    """What is wrong is said of the last batch alone. Of its piece, batches before it may be stored as
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
