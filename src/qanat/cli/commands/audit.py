"""`qanat audit`: prove from delivery records that every subscriber got every event once, in order, or list
violations."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from qanat.cli.main import FOUND_WRONG, OK, UNAVAILABLE
from qanat.cli.options import add_json, add_master, whole
from qanat.cli.spark import started
from qanat.cli.tables import table
from qanat.cli.under_way import UnderWay, tasks_of
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.pipeline.audit.report import Account, Report

EXAMPLES = """\
examples:
  qanat sub orders --record deliveries --name till-3     record a subscriber's deliveries
  qanat audit deliveries --archive /data/archive         prove them, or list violations
  qanat audit deliveries --archive /data/archive --complete
                                                         also that all reached the archive's end
  qanat audit deliveries --archive /data/archive --policy 'orders=same key'
                                                         a stream with a garbage-collection policy
  qanat audit hdfs://host:9000/deliveries --archive hdfs://host:9000/archive --master spark://host:7077

Exit codes: 0 proven, 1 violations, 2 wrong usage, 3 not proven: the archive does not reach far enough, or a
recording is unreadable, 4 undecided: the archive is damaged. docs/audit.md explains the checks.
"""

DAMAGED = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", help="a folder of recordings, or one recording; also as hdfs://host:port/path"
    )
    parser.add_argument("--archive", required=True, metavar="PATH", help="the archive of the streams")
    parser.add_argument(
        "--complete",
        action="store_true",
        help="archived events after a subscriber's last delivery count as not delivered",
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        type=_policy,
        metavar="STREAM=PREDICATE",
        help="a stream's garbage-collection policy, as the predicate of every event",
    )
    parser.add_argument(
        "--limit",
        type=whole,
        default=100,
        metavar="N",
        help="most violations to list; all are counted (default: 100)",
    )
    add_master(parser)
    add_json(parser, "one JSON object instead of words")


def _policy(text: str) -> tuple[str, str]:
    from qanat.events.filters import FilterError, parse

    stream, equals, predicate = text.partition("=")
    if not equals or not stream:
        raise argparse.ArgumentTypeError(
            f"{text!r}: write STREAM=PREDICATE, as 'orders=same key or keep last 1000'"
        )
    try:
        return stream, str(parse(predicate))
    except FilterError as error:
        raise argparse.ArgumentTypeError(f"{predicate!r} is no predicate: {error}") from None


def run(args: argparse.Namespace) -> int:
    from qanat.pipeline.archive.errors import ArchiveDamaged
    from qanat.pipeline.audit.job import audit

    _check_here(args.path, args.archive)
    policies = dict(args.policy)
    try:
        with UnderWay() as under:
            spark = started(args, None, "qanat audit", under)
            under.say(f"comparing the records in {args.path} with {args.archive}", tasks_of(spark))
            report = audit(
                spark, args.path, args.archive, whole=args.complete, policies=policies, limit=args.limit
            )
    except ArchiveDamaged as error:
        said = f"undecided, because the archive is damaged: {error}"
        print(json.dumps({"audit": "archive damaged", "not_proven": [said]}) if args.json else said)
        return DAMAGED
    if args.json:
        print(json.dumps(report.as_json(), ensure_ascii=False))
    else:
        _tell(report)
    return {"proven": OK, "refuted": FOUND_WRONG, "not proven": UNAVAILABLE}[report.outcome]


def _check_here(path: str, archive: str) -> None:
    """Checks the paths before Spark starts, since most mistakes are in them."""
    from qanat.pipeline.archive.errors import NoArchive
    from qanat.pipeline.archive.layout import stream_of_folder
    from qanat.pipeline.archive.storage import needs_spark, storage_of

    if "://" not in path and not os.path.exists(path.removeprefix("file:")):
        raise LocalError(
            f"there are no recordings at {path}; record with Client(…, record=FOLDER) or `qanat sub --record`"
        )
    if needs_spark(archive):
        return
    if not any(stream_of_folder(entry.name) for entry in storage_of(archive).entries("")):
        raise NoArchive(f"there is no archive at {archive}; `qanat archive run {archive}` makes one")


def _tell(report: Report) -> None:
    heads = [
        "subscriber",
        "stream",
        "filter",
        "runs",
        "from",
        "to",
        "proven to",
        "delivered",
        "collected",
        "again",
        "wrong",
    ]
    print(table(heads, [_row(account) for account in report.accounts]))
    if report.latency_ms:
        shares = [name for name in next(iter(report.latency_ms.values())) if name != "events"]
        rows = [
            [region or "–", f"{int(found['events']):,}", *(f"{found[name]:.2f} ms" for name in shares)]
            for region, found in report.latency_ms.items()
        ]
        print("\n" + table(["region", "events", *(name.replace("_", ".") for name in shares)], rows))
    for violation in report.violations:
        print(f"VIOLATION  {violation.sentence()}")
    counted = sum(violation.last - violation.first + 1 for violation in report.violations)
    if report.wrong > counted:
        print(f"… {report.wrong} violations in all; --limit shows more")
    for sentence in report.not_proven:
        print(f"not proven: {sentence}")
    match report.outcome:
        case "proven":
            print(f"\nproven: {report.delivered:,} deliveries, gapless, in order, each exactly once")
        case "refuted":
            print(f"\nrefuted: {report.wrong:,} violations in {report.delivered:,} deliveries")
        case _:
            print("\nnot proven: there is no violation, but some deliveries are undecided")


def _row(account: Account) -> list[object]:
    return [
        account.subscriber,
        account.stream,
        account.where or "–",
        account.runs,
        account.first,
        account.last,
        account.proven_to,
        account.delivered,
        account.collected,
        account.repeated,
        sum(account.violations.values()),
    ]
