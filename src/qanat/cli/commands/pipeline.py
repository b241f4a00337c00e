"""`qanat pipeline`: feed datastores' logs into streams and an archive, from one file."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from qanat.cli.main import FOUND_WRONG, OK, UNAVAILABLE
from qanat.cli.options import add_action, add_json, add_master, spark_settings
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.pipeline.pipeline_file import PipelineFile

EXAMPLES = """\
examples:
  qanat pipeline run shop.toml                      until Ctrl-C or `qanat pipeline stop`
  qanat pipeline stop shop.toml
  qanat pipeline run shop.toml --once               up to the logs' present end
  qanat pipeline run shop.toml --master spark://host:7077
  qanat pipeline status shop.toml --json
  qanat pipeline dead-letters shop.toml             list updates that could not be published

A file:
  url = "qanat://127.0.0.1:7411"
  [sources.shop]
  log = "mariadb://me@127.0.0.1/shop?dataset=shop"  QANAT_PASSWORD has the password
  shards = "hash:4"
  [[routes]]
  tables = ["orders"]
  stream = "orders-{shard}"
  [archive]
  path = "archive"

Exit codes of run: 0 stopped or done; 1 checkpoint, log and streams disagree, or the file does not fit them;
2 the file is unreadable or its pipeline runs already; 3 a server was unavailable for longer than
ingest.patience_s.
"""
_SAY_S = 5.0
_SHARDS = 8
"""Most streams in a line of progress; `status` lists all."""
_STOP_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, what: str) -> argparse.ArgumentParser:
        made = add_action(commands, name, what, EXAMPLES)
        made.add_argument("file", metavar="FILE", help="the pipeline's file (docs/pipeline.md)")
        return made

    run = action("run", "run a pipeline")
    add_master(run)
    run.add_argument(
        "--once",
        "--available-now",
        action="store_true",
        help="end after all updates that the logs had at the start",
    )
    run.add_argument(
        "--from",
        dest="begin",
        default="",
        metavar="POSITION",
        help=(
            "where a source without a checkpoint begins: a position, earliest or latest (overrides"
            " its start setting)"
        ),
    )
    run.add_argument(
        "--accept-changes",
        action="store_true",
        help="resume at the checkpoint although tables, filters, shards or routes have changed",
    )
    add_json(run, "print the last status as one JSON object at the end")
    add_json(action("status", "show a pipeline's state"), "one JSON object with every detail")
    action("stop", "stop a running pipeline and wait for its end")
    letters = action("dead-letters", "list updates that could not be published")
    letters.add_argument("--source", default="", help="only those of this source")
    letters.add_argument(
        "--originals", metavar="FOLDER", help="write each original update into a file in this folder"
    )
    add_json(letters, "one JSON object per dead letter")


def run(args: argparse.Namespace) -> int:
    from qanat.pipeline.pipeline_file import read

    file = read(args.file)
    match args.action:
        case "run":
            return _run(args, file)
        case "status":
            return _status(args, file)
        case "stop":
            return _stop(file)
    return _dead_letters(args, file)


def _run(args: argparse.Namespace, file: PipelineFile) -> int:
    from qanat.pipeline.running import Run
    from qanat.runtime import logs

    logs.set_up_unless_done("warning")  # log waits and losses of its archive
    if args.begin not in ("", "earliest", "latest"):
        _position(args.begin)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    running = Run(
        file,
        spark_settings(args, file.pipeline.spark),
        once=args.once,
        accept=args.accept_changes,
        begin=args.begin,
        stopping=stopping,
    )
    ended = threading.Event()
    teller = threading.Thread(target=_say, args=(running.status, ended), daemon=True)
    teller.start()
    try:
        status = running.run()
    finally:
        ended.set()
        teller.join()
    if args.json:
        print(json.dumps(status))
    else:
        print(_lines(status), file=sys.stderr)
    return OK


def _position(text: str) -> None:
    from qanat.events.position import Position

    try:
        Position.parse(text)
    except ValueError:
        raise LocalError(
            f"--from {text}: give a position (sequence:index, as 1042:0), earliest or latest"
        ) from None


def _say(status: Any, ended: threading.Event) -> None:
    """Prints progress every few seconds, and trouble at once."""
    troubles: dict[str, str] = {}
    said = time.monotonic() - _SAY_S
    while not ended.wait(0.5):
        told = status()
        for name, source in told["sources"].items():
            trouble = source.get("trouble", "")
            if trouble and trouble != troubles.get(name):
                print(f"qanat: {name}: waiting: {trouble}", file=sys.stderr, flush=True)
            troubles[name] = trouble
        if time.monotonic() - said >= _SAY_S:
            said = time.monotonic()
            print(_lines(told), file=sys.stderr, flush=True)


def _lines(status: dict[str, Any]) -> str:
    lines = []
    for name, source in status["sources"].items():
        lines.append(
            f"{name}: {source['published']:,} events published, {source['input_per_s']:,}/s in,"
            f" {source['processed_per_s']:,}/s of work, {source['lag_s']:.1f} s behind,"
            f" {source['dead_letters']:,} dead letters, at {source['position'] or 'its beginning'}"
        )
        lines += _shards(source["shards"])
    for stream, one in status.get("archive", {}).items():
        upto = f", up to {one['upto']:,}" if one["rows"] else ""
        lines.append(f"archive of {stream}: {one['rows']:,} events since the start{upto}")
    return "\n".join(lines) or f"{status['pipeline']}: {status.get('doing') or status['state']}"


def _shards(shards: dict[str, Any]) -> list[str]:
    """The lag of each stream, the largest first; empty if there is only one."""
    if len(shards) < 2:
        return []
    worst = sorted(shards.items(), key=lambda pair: (-pair[1]["lag_s"], pair[0]))
    told = ", ".join(f"{stream} {one['lag_s']:.1f} s" for stream, one in worst[:_SHARDS])
    more = f", and {len(worst) - _SHARDS} more" if len(worst) > _SHARDS else ""
    return [f"  behind: {told}{more}"]


def _status(args: argparse.Namespace, file: PipelineFile) -> int:
    from qanat.cli.tables import table
    from qanat.pipeline.ingest.state import State
    from qanat.runtime.folder_lock import is_locked

    status, runs = State(file.state).status(), is_locked(file.state)
    if status is None:
        status = {"pipeline": file.name, "state": "never ran", "sources": {}}
    elif not runs and status["state"] in ("starting", "running"):
        status["state"] = "killed"
    status["runs"] = runs
    if args.json:
        print(json.dumps(status))
    else:
        where = f", {status['admin']}/metrics" if runs and status.get("admin") else ""
        print(f"{status['pipeline']}: {status['state']}{where}")
        if error := status.get("error"):
            print(f"ended by: {error}")
        rows = [
            (
                name,
                one["state"],
                one["published"],
                one["input_per_s"],
                one["lag_s"],
                one["dead_letters"],
                one["position"],
            )
            for name, one in status["sources"].items()
        ]
        if rows:
            print(table(("source", "state", "published", "per s", "lag s", "dead letters", "position"), rows))
        shards = [
            (name, stream, one["events"], one["lag_s"], one["position"])
            for name, source in status["sources"].items()
            for stream, one in source["shards"].items()
        ]
        if shards:
            print(table(("source", "stream", "events", "lag s", "position"), shards))
        archived = [
            (stream, one["rows"], one["upto"], one["behind"])
            for stream, one in status.get("archive", {}).items()
        ]
        if archived:
            print(table(("archive of", "events", "up to", "behind"), archived))
        for name, source in status["sources"].items():
            if trouble := source.get("trouble"):
                print(f"{name} has waited for {source['trouble_s']:.0f} s: {trouble}")
    failed = status["state"] in ("failed", "killed") or any(
        "trouble" in one for one in status["sources"].values()
    )
    return FOUND_WRONG if failed else OK


def _stop(file: PipelineFile) -> int:
    from qanat.pipeline.ingest.state import State
    from qanat.runtime.folder_lock import is_locked

    status = State(file.state).status()
    if not is_locked(file.state) or status is None:
        print(f"qanat: {file.name} does not run", file=sys.stderr)
        return OK
    os.kill(int(status["pid"]), signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while is_locked(file.state):
        if time.monotonic() > deadline:
            print(
                f"qanat: {file.name} (process {status['pid']}) still runs after SIGTERM",
                file=sys.stderr,
            )
            return UNAVAILABLE
        time.sleep(0.05)
    return OK


def _dead_letters(args: argparse.Namespace, file: PipelineFile) -> int:
    from pathlib import Path

    from qanat.pipeline.ingest import dead_letters

    if args.source and args.source not in file.pipeline.sources:
        raise LocalError(f"--source {args.source}: {args.file} has {', '.join(file.pipeline.sources)}")
    problems: list[str] = []
    letters = dead_letters.read(file.state, args.source, problems)
    folder = Path(args.originals) if args.originals else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    if not letters.num_rows and not args.json and not problems:
        print("no dead letters", file=sys.stderr)
    for letter in letters.to_pylist():
        position = f"{letter['sequence']}:{letter['index']}"
        original = letter.pop("original")
        if folder is not None:
            (
                folder / f"{letter['source']}-{letter['sequence']}-{letter['index']}.{letter['form']}"
            ).write_bytes(original)
        if args.json:
            print(json.dumps({**letter, "bytes": len(original), "written": letter["written"].isoformat()}))
        else:
            print(
                f"{letter['source']} {position} {letter['table']}: {letter['stage']}: {letter['reason']}"
                f" ({len(original):,} bytes)"
            )
    for problem in problems:
        print(f"qanat: {problem}", file=sys.stderr)
    return FOUND_WRONG if problems else OK
