"""The audit: recordings of deliveries beside an archive, until it is proven that every subscriber had every
event once and in order.

| figure | is |
|---|---|
| `audit_rows_per_s` | deliveries that are judged, of all subscribers together |
| `audit_events_per_s` | rows of the archive that they are judged by; each is read once, for all subscribers |

Half of the subscribers have a filter that one event in three passes, which the audit evaluates on its own.
All of it was delivered in batches of 1,000.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qanat.bench.figures import medians

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "proof of deliveries against an archive, in deliveries/s"
EVENTS = int(os.environ.get("QANAT_BENCH_AUDIT_EVENTS", "4000000"))
SUBSCRIBERS = 4
_FILES = 8
_BATCH = 1000
_STREAM = "events"
_WHERE = "colour = 'red'"
_COLOURS = ("red", "green", "blue")
_NOW_US = 1_700_000_000_000_000


def deliveries(events: int) -> int:
    """Of all subscribers together."""
    return SUBSCRIBERS // 2 * events + SUBSCRIBERS // 2 * len(range(0, events, 3))


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, after one that is not counted: Java compiles what it runs often."""
    from qanat.pipeline.session import SparkSettings, open_session

    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    spark = open_session(SparkSettings(memory="2g", folder=str(folder / "spark")), "bench audit")
    try:
        prepare(folder)
        judged = deliveries(EVENTS)
        say(f"{EVENTS:,} events of 100 bytes, {SUBSCRIBERS} subscribers with {judged:,} deliveries")
        measured = []
        for number in range(rounds + 1):
            took = prove(spark, folder)
            measured.append({"audit_rows_per_s": judged / took, "audit_events_per_s": EVENTS / took})
            told = ", ".join(f"{name} {value:,.0f}" for name, value in measured[-1].items())
            say(f"round {number} of {rounds}: {told}")
        return medians(measured[1:])
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def prove(spark: SparkSession, folder: Path, events: int = EVENTS) -> float:
    """How many seconds the audit took of what was prepared."""
    from qanat.pipeline.audit.job import audit

    began = time.perf_counter()
    report = audit(spark, str(folder / "deliveries"), str(folder / "archive"), whole=True)
    taken = time.perf_counter() - began
    delivered = sum(account.delivered for account in report.accounts)
    if report.violations or report.not_proven or delivered != deliveries(events):
        raise AssertionError(
            f"{delivered} of {deliveries(events)} were delivered, {report.violations[:3]},"
            f" {report.not_proven}"
        )
    return taken


def prepare(folder: Path, events: int = EVENTS) -> None:
    """The archive of a stream, and what its subscribers recorded."""
    _archive(folder / "archive", events)
    _record(folder / "deliveries", events)


def _archive(folder: Path, events: int) -> None:
    from qanat.pipeline.archive.history import History
    from qanat.pipeline.archive.manifest import DataFile
    from qanat.pipeline.archive.storage import LocalStorage

    history = History(LocalStorage(str(folder)), _STREAM)
    writer = history.begin("append")
    each, files = events // _FILES, []
    for first in range(1, events, each):
        last = first + each - 1
        path = writer.path("2023-11-14", first, last)
        target = Path(history.storage.root) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_rows(first, each), target, compression="zstd", compression_level=1)
        files.append(
            DataFile(
                path=path,
                first=first,
                last=last,
                rows=each,
                bytes=target.stat().st_size,
                checksum=history.storage.checksum(path),
                min_time_us=_NOW_US + first,
                max_time_us=_NOW_US + last,
            )
        )
    writer.append(files)


def _rows(first: int, count: int) -> pa.Table:
    from qanat.events.batch import Batch, stream_id
    from qanat.pipeline.columns import arrow_of

    rng = np.random.default_rng(first)
    batches = []
    for begin in range(first, first + count, 50_000):
        size = min(50_000, first + count - begin)
        seqs = np.arange(begin, begin + size)
        colours = pa.array(_COLOURS).take(pa.array((seqs - 1) % 3))
        batch = Batch.build(
            stream_id(_STREAM),
            rng.integers(97, 113, (size, 100), np.uint8),
            keys=rng.integers(97, 113, (size, 10), np.uint8),
            times=_NOW_US + seqs,
            attributes={"colour": [colours]},
            first=begin,
        )
        batches.append(arrow_of(_STREAM, batch))
    return pa.Table.from_batches(batches)


def _record(folder: Path, events: int) -> None:
    """As subscriptions write them."""
    from qanat.client.record_format import SUFFIX, Entry, Heading, encode_entry, encode_heading, encode_rows

    folder.mkdir()
    for number in range(SUBSCRIBERS):
        step, where = (3, _WHERE) if number % 2 else (1, "")
        name = f"subscriber-{number}"
        heading = Heading(
            subscriber=name,
            region="eu",
            stream=_STREAM,
            where=where,
            start="1",
            first=1,
            began_us=_NOW_US,
            run=name,
        )
        entries = [encode_heading(heading)]
        for first in range(1, events + 1, _BATCH * step):
            seqs = np.arange(first, min(first + _BATCH * step, events + 1), step)
            entries.append(encode_rows(Entry.DATA, _NOW_US + int(seqs[-1]) + 1000, seqs))
        entries.append(encode_entry(Entry.COVERED, _NOW_US + events + 1000, events, 1) if where else b"")
        (folder / f"{name}.0000{SUFFIX}").write_bytes(b"".join(entries))
