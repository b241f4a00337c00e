"""`qanat archive`: archive streams as Parquet files; list, check and tidy archives."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event as Signal
from typing import TYPE_CHECKING, Any

from qanat.cli.main import FOUND_WRONG, OK
from qanat.cli.options import add_action, add_json, add_master, starting_point
from qanat.cli.spark import started
from qanat.cli.tables import table
from qanat.cli.target import Target, add_target, find_target
from qanat.cli.under_way import UnderWay, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qanat.client.subscription import Where
    from qanat.pipeline.archive.history import History
    from qanat.pipeline.archive.manifest import Manifest
    from qanat.pipeline.archive.settings import ArchiveJobSettings

EXAMPLES = """\
examples:
  qanat archive run /data/archive                      archive all streams, also new ones, until Ctrl-C
  qanat archive run /data/archive orders --until-end   one stream, up to its present end
  qanat archive ls /data/archive                       list streams and ranges
  qanat archive show /data/archive orders --files      show one stream with its files
  qanat archive check /data/archive                    compare every file with its checksum
  qanat archive tidy /data/archive                     merge small files, remove unused ones

A second archiver of the same stream takes over from the first. docs/archive.md explains how to read an
archive.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(
        name: str, what: str, work: Callable[[argparse.Namespace], int], streams: str
    ) -> argparse.ArgumentParser:
        sub = add_action(actions, name, what, EXAMPLES)
        sub.add_argument("path", help="the archive: a folder, or hdfs://host:port/path")
        none: list[str] | None = [] if streams == "*" else None
        which = "only these streams" if streams == "*" else "only this stream"
        sub.add_argument(
            "streams", nargs=streams, default=none, metavar="STREAM", help=f"{which} (default: all)"
        )
        add_master(sub)
        sub.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a setting, as archive.batch_ms=1000",
        )
        add_json(sub, "JSON instead of words")
        sub.set_defaults(work=work)
        return sub

    action("ls", "list the archived streams", _ls, "*")
    show = action("show", "show one stream's archive", _show, "?")
    show.add_argument("--files", action="store_true", help="list its files")
    show.add_argument(
        "--version", type=int, metavar="N", help="version of the manifest (default: the newest)"
    )
    run_ = action("run", "archive streams", _run, "*")
    add_target(run_)
    run_.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="WHERE",
        help="where a new archive begins (default: earliest)",
    )
    run_.add_argument("--until-end", action="store_true", help="stop at the streams' present end")
    run_.add_argument(
        "--accept-losses",
        action="store_true",
        help="continue past events that were dropped before they were archived, and record the loss",
    )
    action("check", "compare every file with its checksum", _check, "*")
    action("tidy", "merge small files and remove unused ones", _tidy, "*")


def run(args: argparse.Namespace) -> int:
    return int(args.work(args))


def _settings(args: argparse.Namespace) -> ArchiveJobSettings:
    from qanat.pipeline.archive.settings import ArchiveJobSettings
    from qanat.runtime.config import load

    return load(ArchiveJobSettings, flags=args.set)[0]


def _session(args: argparse.Namespace, settings: ArchiveJobSettings) -> SparkSession:
    with UnderWay() as under:
        return started(args, settings.spark, "qanat archive", under)


def _archive(args: argparse.Namespace, spark: SparkSession | None = None) -> Any:
    """The archive's storage; a folder of this machine needs no Spark."""
    from qanat.pipeline.archive.storage import needs_spark, storage_of

    if spark is None and needs_spark(args.path):
        spark = _session(args, _settings(args))
    return storage_of(args.path, spark)


def _manifests(args: argparse.Namespace, storage: Any) -> list[Manifest]:
    from qanat.pipeline.archive.errors import NoArchive
    from qanat.pipeline.archive.history import History
    from qanat.pipeline.archive.view import streams_of

    names = args.streams if isinstance(args.streams, list) else [args.streams] if args.streams else []
    found = [History(storage, name).existing() for name in names] if names else streams_of(storage)
    if not found:
        raise NoArchive(f"there is no archive at {args.path}; `qanat archive run` creates one")
    return found


def _ranges(manifest: Manifest) -> str:
    return ", ".join(f"{r.first}..{r.last}" for r in manifest.complete()) or "nothing"


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "stream": manifest.stream,
        "complete": manifest.complete(),
        "lost": manifest.lost,
        "collected": manifest.collected,
        "files": len(manifest.files),
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "version": manifest.version,
        "generation": manifest.generation,
        "identity": manifest.identity,
    }


def _ls(args: argparse.Namespace) -> int:
    manifests = _manifests(args, _archive(args))
    if args.json:
        print(json.dumps([_summary(manifest) for manifest in manifests]))
        return OK
    rows = [
        [
            m.stream,
            _ranges(m),
            sum(r.last - r.first + 1 for r in m.lost),
            len(m.files),
            m.rows,
            m.bytes,
            _when(m),
        ]
        for m in manifests
    ]
    print(table(["stream", "complete", "lost", "files", "rows", "bytes", "last commit"], rows))
    return OK


def _when(manifest: Manifest) -> str:
    return _time(manifest.committed_us)


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _show(args: argparse.Namespace) -> int:
    from qanat.pipeline.archive.history import History

    storage = _archive(args)
    manifests = _manifests(args, storage)
    if args.version is not None:
        manifests = [History(storage, m.stream).read(args.version) for m in manifests]
    if args.json:
        import msgspec

        shown = [
            _summary(m)
            | {"versions": History(storage, m.stream).versions()}
            | ({"file_list": msgspec.to_builtins(m.files)} if args.files else {})
            for m in manifests
        ]
        print(json.dumps(shown[0] if args.streams else shown))
        return OK
    for manifest in manifests:
        _print_stream(manifest, History(storage, manifest.stream), files=args.files)
    return OK


def _print_stream(manifest: Manifest, history: History, *, files: bool) -> None:
    versions = history.versions()
    print(f"{manifest.stream}: {_ranges(manifest)} complete")
    for gone in manifest.lost:
        print(f"  lost before it was archived: {gone.first}..{gone.last}")
    if manifest.collected:
        print(f"  garbage collected as of {manifest.collected}")
    print(f"  {len(manifest.files):,} files, {manifest.rows:,} rows, {manifest.bytes:,} bytes")
    print(
        f"  version {manifest.version} of {_when(manifest)} UTC; {len(versions)} versions are left,"
        f" from {min(versions)} on"
    )
    if files:
        rows = [
            [f.path, f.first, f.last, f.rows, f.bytes, _time(f.min_time_us), _time(f.max_time_us)]
            for f in manifest.files
        ]
        print(table(["file", "first", "last", "rows", "bytes", "oldest", "newest"], rows))


def _run(args: argparse.Namespace) -> int:
    from qanat.client import Client

    settings = _settings(args)
    start = starting_point(args.start)
    target = find_target(args)
    target.say("archiving streams of")
    with Client(target.url) as client:

        def there() -> list[str]:
            return [stream["stream"] for stream in client.ask("streams")]

        return _archive_all(args, target, settings, start, there)


def _archive_all(
    args: argparse.Namespace,
    target: Target,
    settings: ArchiveJobSettings,
    start: Where,
    there: Callable[[], list[str]],
) -> int:
    from qanat.pipeline.archive.running import archive_streams
    from qanat.runtime import logs

    streams = args.streams or there()
    spark = _session(args, settings)
    logs.set_up_unless_done("warning")  # log waits and losses
    stop = Signal()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    done = archive_streams(
        spark,
        target.url,
        args.path,
        streams,
        settings=settings.archive,
        start=start,
        accept_losses=args.accept_losses,
        until_end=args.until_end,
        stop=stop,
        more=None if args.streams else there,
    )
    with UnderWay() as under:
        under.say(f"archiving {', '.join(streams[:5])}{', …' if len(streams) > 5 else ''}", tasks_of(spark))
        for stream, archived in done:
            under.print(
                json.dumps({"stream": stream, **archived._asdict()})
                if args.json
                else (
                    f"{stream}: {archived.first}..{archived.last} in {archived.files} files,"
                    f" {archived.bytes:,} bytes; {archived.behind:,} behind"
                )
            )
            if not args.until_end:  # the lines themselves show progress from here on
                under.done()
    return OK


def _check(args: argparse.Namespace) -> int:
    from qanat.pipeline.archive.check import check_files
    from qanat.pipeline.archive.history import History

    storage = _archive(args)
    wrong: list[dict[str, Any]] = []
    files = 0

    def compared() -> str:
        return f"{files:,} compared"

    with UnderWay() as under:
        for manifest in _manifests(args, storage):
            history = History(storage, manifest.stream)
            under.say(f"comparing the files of {manifest.stream}", compared)
            for file, what in check_files(history):
                files += 1
                if what:
                    wrong.append(
                        {
                            "stream": manifest.stream,
                            "file": file.path,
                            "first": file.first,
                            "last": file.last,
                            "wrong": what,
                        }
                    )
    if args.json:
        print(json.dumps({"files": files, "wrong": wrong}))
    else:
        for found in wrong:
            print(
                f"{found['stream']} {found['first']}..{found['last']}: {found['file']}: {found['wrong']}",
                file=sys.stderr,
            )
        print(
            f"{len(wrong):,} of {files:,} files are damaged or missing"
            if wrong
            else f"all {files:,} files are intact"
        )
    return FOUND_WRONG if wrong else OK


def _tidy(args: argparse.Namespace) -> int:
    from qanat.pipeline.archive.clean import clean
    from qanat.pipeline.archive.history import History
    from qanat.pipeline.archive.tables import SparkTables
    from qanat.pipeline.archive.tidy import tidy

    settings = _settings(args)
    spark = _session(args, settings)
    storage = _archive(args, spark)
    told = []
    for manifest in _manifests(args, storage):
        history = History(storage, manifest.stream)
        merged = sum(1 for _ in tidy(SparkTables(spark), history, settings.archive))
        cleaned = clean(history, settings.archive.keep_ms)
        now = history.existing()
        told.append(
            {"stream": now.stream, "merges": merged, "files": len(now.files), "removed": cleaned._asdict()}
        )
        if not args.json:
            print(
                f"{now.stream}: {merged} merges, {len(manifest.files):,} files are now {len(now.files):,};"
                f" removed {cleaned.files:,} files"
            )
    if args.json:
        print(json.dumps(told))
    return OK
