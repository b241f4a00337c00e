"""`qanat changes`: print a datastore's updates as they are committed, or feed them into a stream."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Literal

from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.options import add_patience, whole
from qanat.cli.target import add_target, find_target
from qanat.cli.under_way import UnderWay
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from qanat.capture import LogReader, Start, Updates
    from qanat.capture.choice import Choice
    from qanat.capture.trying import Trying
    from qanat.capture.updates import Run
    from qanat.client import Client
    from qanat.events.position import Position

EXAMPLES = """\
examples:
  export QANAT_PASSWORD="$(cat shop.password)"                    the command line is visible to all users
  qanat changes mariadb://me@127.0.0.1:3306/shop --check          check the datastore's set-up
  qanat changes mariadb://me@127.0.0.1:3306/shop                  updates from now on
  qanat changes postgresql://me@127.0.0.1/shop --table 'public.*' --from earliest --count 10
  qanat changes rocksdb:///var/lib/store --where "#op = delete"
  qanat changes file:///var/log/app/*.json --format debezium
  qanat changes qanat://127.0.0.1:7411/orders --from 1042:0       a Qanat stream
  qanat changes mariadb://me@127.0.0.1/shop --from snapshot the current rows, then each update
  qanat changes 'mariadb://me@127.0.0.1/shop?dataset=shop' --from snapshot --into shop --state shop.json
                                                  the same into a stream; run it again after a crash
  qanat changes 'mariadb://me@127.0.0.1/shop?dataset=shop' --into shop --shard-by hash:64
                                                  into a stream, exactly once; run it again after a crash

Logs and their set-up: docs/readers.md. The printed form: docs/updates.md. QANAT_PASSWORD has the password
of the URL's user.
"""
_ROWS = 10_000
_WAIT_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="URL", help="URL of the datastore; options follow a question mark")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the datastore's set-up and print the changes that it needs",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these tables, as shop.orders or 'shop.*'; repeat it for several patterns",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        help=(
            "start after a position (sequence:index), or at earliest, latest or snapshot (default:"
            " latest; with --into earliest)"
        ),
    )
    parser.add_argument(
        "--rows-per-s", type=whole, default=0, metavar="N", help="most rows of a snapshot per second"
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help="progress of a snapshot into a stream; use the same file to resume",
    )
    parser.add_argument("--where", default="", metavar="FILTER", help="only updates that pass this filter")
    parser.add_argument("--format", choices=("json", "debezium"), default="json", help="(default: json)")
    parser.add_argument("--count", type=whole, metavar="N", help="stop after N updates")
    parser.add_argument("--until-end", action="store_true", help="stop at the log's present end")
    parser.add_argument("--into", metavar="STREAM", help="feed this stream instead of printing")
    parser.add_argument(
        "--shard-by",
        default="",
        metavar="HOW",
        help="the shard #S: a column, or hash:N of the key (default: the column #S, if there is one)",
    )
    add_target(parser)
    add_patience(parser, "the datastore and, with --into, the server")


def run(args: argparse.Namespace) -> int:
    if args.check:
        return _check(args)
    from qanat.capture.choice import Choice
    from qanat.capture.sharding import Sharding
    from qanat.capture.url import split_warning
    from qanat.events.filters import parse

    choice = Choice(
        tuple(args.table), parse(args.where) if args.where else None, Sharding.parse(args.shard_by)
    )
    start = _start(args.start or ("earliest" if args.into else "latest"))
    if start == "snapshot" and args.into and not args.state:
        raise LocalError("--from snapshot --into needs --state FILE, to resume after a crash")
    if warning := split_warning(args.log, choice.sharding):
        print(f"qanat: {warning}", file=sys.stderr, flush=True)
    trying = _patient(args)
    reader = trying.ask(lambda: _open(args))
    try:
        end = trying.ask(reader.latest) if args.until_end else None
        return (
            _into(args, reader, choice, start, end)
            if args.into
            else _print(args, reader, choice, start, end, trying)
        )
    finally:
        reader.close()


def _open(args: argparse.Namespace) -> LogReader:
    from qanat.capture.url import open_reader, with_password

    return open_reader(with_password(args.log))


def _patient(args: argparse.Namespace) -> Trying:
    """Waits for a server, but not for a missing folder, which is a typing error."""
    from qanat.capture.trying import Trying
    from qanat.capture.url import parse_log_url

    def say(sentence: str) -> None:
        print(f"qanat: {sentence}", file=sys.stderr, flush=True)

    return Trying(args.patience if parse_log_url(args.log).host else 0, say)


def _start(text: str) -> Start | Literal["snapshot"]:
    from qanat.events.position import Position

    words: dict[str, Start | Literal["snapshot"]] = {
        "earliest": "earliest",
        "latest": "latest",
        "snapshot": "snapshot",
    }
    if text in words:
        return words[text]
    try:
        return Position.parse(text)
    except ValueError:
        raise LocalError(
            f"--from {text}: give a position (sequence:index, as 1042:0), earliest, latest or snapshot"
        ) from None


def _check(args: argparse.Namespace) -> int:
    from qanat.capture.url import check, with_password

    findings = check(with_password(args.log))
    for finding in findings:
        mark = "ok" if finding.ok else "NEEDED" if finding.needed else "advised"
        print(f"{mark:<7}  {finding.what}")
        if not finding.ok and finding.fix:
            print("\n".join(f"           {line}" for line in finding.fix.splitlines()))
    needed = sum(finding.wrong for finding in findings)
    advised = [finding for finding in findings if not finding.ok and not finding.needed]
    print(_verdict(needed, len(advised), all(f.fix for f in findings if not f.ok)))
    return FOUND_WRONG if needed else OK


def _verdict(needed: int, advised: int, fixes: bool) -> str:
    below = "; each has its fix below it" if fixes else ""
    if needed:
        more = f", {advised} advised" if advised else ""
        return f"the log cannot be read yet: {needed} to change{more}{below}"
    return f"the set-up is sound; {advised} advised{below}" if advised else "the set-up is sound"


def _print_snapshot(
    args: argparse.Namespace, reader: LogReader, choice: Choice, left: int | None
) -> tuple[Position, int | None]:
    """Prints the current rows and the updates meanwhile; returns the position reached and the remaining
    count."""
    from contextlib import closing

    from qanat.capture.snapshot import snapshot
    from qanat.capture.snapshot_feed import begun, snapshot_source
    from qanat.capture.url import open_chunks, with_password
    from qanat.events.position import Position

    with closing(open_chunks(with_password(args.log))) as chunks:
        progress = begun(reader, chunks, choice, Position(0, 0))
        for step in snapshot(reader, chunks, progress, rows_per_s=args.rows_per_s):
            source = snapshot_source(reader.source) if step.is_chunk else reader.source
            left = _show(args, source, choice, choice.of(step.updates), left)
            progress = step.progress
            sys.stdout.flush()
            if left == 0:
                break
    return progress.position, left


def _print(
    args: argparse.Namespace,
    reader: LogReader,
    choice: Choice,
    start: Start | Literal["snapshot"],
    end: Position | None,
    trying: Trying,
) -> int:
    from qanat.capture.url import parse_log_url

    left: int | None = args.count
    if start == "snapshot":
        start, left = _print_snapshot(args, reader, choice, left)
    with UnderWay() as under:
        under.say(f"waiting for updates of {parse_log_url(args.log)}, from {start} on")
        return _print_on(args, reader, choice, start, end, left, under, trying)


def _print_on(
    args: argparse.Namespace,
    reader: LogReader,
    choice: Choice,
    start: Start,
    end: Position | None,
    left: int | None,
    under: UnderWay,
    trying: Trying,
) -> int:
    from qanat.capture import Lost
    from qanat.capture.losses import loss_line
    from qanat.events.position import Position

    trying.ask(lambda: reader.seek(start))
    code, upto = OK, Position(0, 0) if isinstance(start, str) else start
    while left != 0 and (end is None or upto < end):
        item = trying.ask(lambda: reader.read(_ROWS, _WAIT_S))
        upto = item.upto or upto
        if isinstance(item, Lost):
            print(
                f"qanat: lost the updates after {item.after} up to {item.upto}: {item.reason}",
                file=sys.stderr,
            )
            if args.format == "json":
                print(loss_line(item).decode())
            code = FOUND_WRONG
        else:
            updates = choice.of(item)
            if any(map(len, updates.runs)):
                under.done()  # the updates themselves show progress from here on
            left = _show(args, reader.source, choice, updates, left)
        sys.stdout.flush()
    return code


def _show(
    args: argparse.Namespace, source: str, choice: Choice, updates: Updates, left: int | None
) -> int | None:
    from qanat.capture.debezium import envelopes
    from qanat.capture.envelope import lines
    from qanat.capture.sharding import shards

    scheme = args.log.partition("://")[0].lower()
    connector = {"postgres": "postgresql"}.get(scheme, scheme)

    def texts(run: Run) -> list[str]:
        if args.format == "debezium":
            found: list[str] = envelopes(run, connector, source, int(time.time() * 1000)).to_pylist()
        else:
            found = lines(run, shards(run, choice.sharding)).to_pylist()
        return found

    for run in updates.runs:
        part = run if left is None else run.slice(0, left)
        if len(part):
            print("\n".join(texts(part)))
        left = None if left is None else left - len(part)
    return left


def _into(
    args: argparse.Namespace,
    reader: LogReader,
    choice: Choice,
    start: Start | Literal["snapshot"],
    end: Position | None,
) -> int:
    from qanat.capture.feed import Feed, source_of
    from qanat.client import Client

    def say(sentence: str) -> None:
        print(f"qanat: {sentence}", file=sys.stderr, flush=True)

    began, fed, source = time.monotonic(), 0, source_of(reader, choice)
    target = find_target(args, args.into)
    target.say(f"feeding {args.into} at")
    with Client(target.url, name=source, patience=args.patience) as client:
        if start == "snapshot":
            fed, start = _into_snapshot(args, reader, client, choice, say)
        elif end is not None and (reached := client.position(args.into)) > max(end, reader.latest()):
            say(
                f"{args.into} has {source} up to {reached}, but the log ends before: the log is a"
                f" replica that is behind, or another log"
            )
            return FOUND_WRONG
        feed = Feed(reader, client, args.into, start=start, choice=choice, say=say, patience_s=args.patience)
        upto = max(client.position(args.into), (0, 0) if isinstance(start, str) else start)
        say(f"{source} into {args.into}, after {upto}" if upto > (0, 0) else f"{source} into {args.into}")
        while (end is None or upto < end) and (args.count is None or fed < args.count):
            step = feed.step()
            fed += step.events
            upto = max(upto, step.upto or upto)
    say(f"{fed:,} events into {args.into} in {time.monotonic() - began:.2f} s, up to {upto}")
    return FOUND_WRONG if feed.losses else OK


def _into_snapshot(
    args: argparse.Namespace, reader: LogReader, client: Client, choice: Choice, say: Callable[[str], None]
) -> tuple[int, Position]:
    """Feeds the current rows and the updates meanwhile; returns the number of events and the position
    reached."""
    from contextlib import closing
    from pathlib import Path

    from qanat.capture.feed import source_of
    from qanat.capture.snapshot_feed import feed_snapshot, load, snapshot_source
    from qanat.capture.url import open_chunks, with_password
    from qanat.client import Client
    from qanat.events.position import Position

    state = Path(args.state)
    with (
        closing(open_chunks(with_password(args.log))) as chunks,
        Client(client.url, name=snapshot_source(source_of(reader, choice)), patience=args.patience) as rows,
    ):
        fed = feed_snapshot(
            reader,
            chunks,
            (client, rows),
            args.into,
            state,
            choice=choice,
            rows_per_s=args.rows_per_s,
            say=say,
        )
    done = load(state)
    return fed, Position(0, 0) if done is None else done.position
