"""`qanat compact`: collect the garbage of archived streams, as their own logs would."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from qanat.cli.main import OK
from qanat.cli.options import add_json, add_master, whole
from qanat.cli.spark import started
from qanat.cli.under_way import UnderWay, tasks_of

if TYPE_CHECKING:
    from qanat.log.config import Policy
    from qanat.pipeline.archive.settings import ArchiveJobSettings
    from qanat.pipeline.compact.job import Compacted

EXAMPLES = """\
examples:
  qanat compact /data/archive                              all streams, by their GC events
  qanat compact /data/archive orders --policy 'same key'
        one stream; each event collects earlier ones of its key
  qanat compact /data/archive --policy 'orders=same key' --policy 'clicks=keep last 1000000 or older than 30d'
  qanat compact /data/archive orders --upto 1000000
        ignore later events: they neither collect nor are collected
  qanat compact /data/archive orders --dry-run             show what it would collect

The archive's newest version no longer has the collected events; older versions stay readable for
archive.keep_ms.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the archive: a folder, or hdfs://host:port/path")
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="only these (default: all)")
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="[STREAM=]PREDICATE",
        help=(
            "garbage-collection policy of a stream (default: of all): `same key`, `keep last N`,"
            " `older than AGE`, joined by `or`"
        ),
    )
    parser.add_argument(
        "--upto",
        type=whole,
        metavar="SEQ",
        help="ignore events after this number (default: the last archived one)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what it would collect and change nothing"
    )
    add_master(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting, as archive.file_bytes=67108864",
    )
    add_json(parser, "a JSON array with an object for each stream")


def run(args: argparse.Namespace) -> int:
    from qanat.pipeline.archive.settings import ArchiveJobSettings
    from qanat.pipeline.compact.policies import policies_of
    from qanat.runtime.config import load

    settings = load(ArchiveJobSettings, flags=args.set)[0]
    general, single = policies_of(args.policy)
    with UnderWay() as under:
        return _compact(args, settings, general, single, under)


def _compact(
    args: argparse.Namespace,
    settings: ArchiveJobSettings,
    general: Policy,
    single: dict[str, Policy],
    under: UnderWay,
) -> int:
    from qanat.pipeline.archive.errors import NoArchive
    from qanat.pipeline.archive.history import History
    from qanat.pipeline.archive.storage import needs_spark, storage_of
    from qanat.pipeline.archive.view import streams_of

    remote = needs_spark(args.path)
    spark = started(args, settings.spark, "qanat compact", under) if remote else None
    storage = storage_of(args.path, spark)
    names = args.streams or [m.stream for m in streams_of(storage) if m.files]
    if not names:
        raise NoArchive(f"there is no archive at {args.path}; `qanat archive run` makes one")
    unknown = sorted(set(single) - set(names))
    if unknown:
        raise NoArchive(f"--policy names {unknown[0]!r}, which is not among the streams {', '.join(names)}")
    histories = [History(storage, name) for name in names]
    for history in histories:
        history.existing()  # before Spark is started, which takes seconds
    spark = spark or started(args, settings.spark, "qanat compact", under)
    from qanat.pipeline.compact.job import compact

    done: list[dict[str, Any]] = []
    for history in histories:
        under.say(f"collecting the garbage of {history.stream}", tasks_of(spark))
        result = compact(
            spark,
            history,
            single.get(history.stream, general),
            upto=args.upto,
            settings=settings.archive,
            dry_run=args.dry_run,
        )
        done.append(result._asdict())
        if not args.json:
            under.print(_sentence(result, tried=args.dry_run))
    under.done()
    if args.json:
        print(json.dumps(done))
    return OK


def _sentence(result: Compacted, *, tried: bool) -> str:
    dead = result.events - result.living
    head = f"{result.stream}: as of {result.upto:,}, {dead:,} of {result.events:,} events are garbage"
    if not result.rewritten:
        return f"{head}; no file changes"
    if tried:
        return f"{head}; it would rewrite {result.rewritten:,} of {result.files:,} files"
    return (
        f"{head}; rewrote {result.rewritten:,} files, freed {result.freed_bytes:,} bytes; "
        f"version {result.version} has {result.files:,} files, {result.rows:,} rows"
    )
