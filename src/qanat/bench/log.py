"""How fast the log is: append against a plain file, key-based collection, rewriting, recovery."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from qanat.bench.figures import gathered, in_turns
from qanat.events.batch import Batch, stream_id
from qanat.log import LogConfig, OsDisk, Policy, StreamLog

DESCRIPTION = (
    "append MB/s against a plain file, key-based collection on Zipf 1.1, rewriting, recovery per GiB"
)

STREAM = stream_id("bench")
EVENT_BYTES = 500
BATCH_EVENTS = 400
"""Events of 500 bytes in a batch: about 200 KB, what a busy server hands to its log."""
APPEND_BYTES = 256 * 1024 * 1024
SYNC_EVERY_BYTES = 32 * 1024 * 1024
"""Both sides sync after as many bytes, what 50 ms are at 600 MB/s, and take turns."""
KEYS = 100_000
SKEW = 1.1
GC_BATCH_EVENTS = 8192
GC_EVENTS = 2_000_000


@contextmanager
def _folder() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds; each round does every part once, so all see the same machine."""
    figures: dict[str, list[float]] = {}
    for i in range(rounds):
        for part in (_append_round, _collect_round):
            for name, value in part(i).items():
                figures.setdefault(name, []).append(value)
        say(f"round {i + 1} of {rounds}: " + ", ".join(f"{k} {v[-1]:.4g}" for k, v in figures.items()))
    return gathered(figures)


# --- append and recovery --------------------------------------------------------------------------------


def _append_round(i: int) -> dict[str, float]:
    payloads = np.random.default_rng(i).integers(0, 256, (BATCH_EVENTS, EVENT_BYTES), np.uint8)
    data = bytes(Batch.build(STREAM, payloads, time_us=1_000_000).encode())
    count = SYNC_EVERY_BYTES // len(data)
    with _folder() as folder:
        gc.collect()
        with _plain(folder, data, count) as plain, _log(folder, data, count) as log:
            pair = in_turns(log, plain, APPEND_BYTES // SYNC_EVERY_BYTES, first=i)
        appended = APPEND_BYTES // SYNC_EVERY_BYTES * count * len(data)
        return {
            "recovery_s_per_gib": _recovery(folder) * (1 << 30) / appended,
            "append_mb_per_s": pair.ours / 1e6,
            "plain_mb_per_s": pair.theirs / 1e6,
            "append_ratio": pair.ratio,
        }


@contextmanager
def _plain(folder: str, data: bytes, count: int) -> Iterator[Callable[[], float]]:
    """The same bytes through write(2), and a sync; in bytes per second."""
    fd = os.open(f"{folder}/plain", os.O_WRONLY | os.O_CREAT, 0o644)

    def write() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            os.write(fd, data)
        os.fdatasync(fd)
        return count * len(data) / (time.perf_counter() - begin)

    yield write
    os.close(fd)


@contextmanager
def _log(folder: str, data: bytes, count: int) -> Iterator[Callable[[], float]]:
    """Decoded from bytes, checksums verified, and appended, as a server does it, and a sync; in bytes per
    second."""
    log = StreamLog.open(OsDisk(), f"{folder}/log", STREAM, LogConfig(mode="interval"))

    def append() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            log.append(Batch.decode(data))
        log.sync()
        return count * len(data) / (time.perf_counter() - begin)

    yield append
    log.close()


def _recovery(folder: str) -> float:
    begin = time.perf_counter()
    log = StreamLog.open(OsDisk(), f"{folder}/log", STREAM, LogConfig(mode="interval"))
    seconds = time.perf_counter() - begin
    log.close()
    return seconds


# --- collection -----------------------------------------------------------------------------------------


def zipf_keys(rng: np.random.Generator, count: int) -> pa.Array:
    """Keys whose popularity follows a Zipf distribution over a finite set (Sprinkler, section 5.4)."""
    weights = np.arange(1, KEYS + 1) ** -SKEW
    ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(count))
    digits = (ranks[:, None] // 10 ** np.arange(7, -1, -1)) % 10 + ord("0")
    width = 12
    blob = np.empty((count, width), np.uint8)
    blob[:, :4] = np.frombuffer(b"key:", np.uint8)
    blob[:, 4:] = digits
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(blob.tobytes())])


def _collect_round(i: int) -> dict[str, float]:
    rng = np.random.default_rng(100 + i)
    payloads = np.zeros((GC_BATCH_EVENTS, 20), np.uint8)
    encoded = [
        bytes(Batch.build(STREAM, payloads, keys=zipf_keys(rng, GC_BATCH_EVENTS), time_us=1).encode())
        for _ in range(GC_EVENTS // GC_BATCH_EVENTS)
    ]
    events = len(encoded) * GC_BATCH_EVENTS
    config = LogConfig(mode="interval", policy=Policy(by_key=True), segment_bytes=16 * 1024 * 1024)
    with _folder() as folder:
        log = StreamLog.open(OsDisk(), f"{folder}/log", STREAM, config)
        gc.collect()
        begin = time.perf_counter()
        for data in encoded:
            log.append(Batch.decode(data))
        marked = log.stats()
        seconds = time.perf_counter() - begin
        log.sync()
        stored = log.stats().bytes
        begin = time.perf_counter()
        rewritten = 0
        while True:
            step = log.collect(everything=True)
            rewritten += step.rewritten_bytes
            if not step.more:
                break
        rewriting = time.perf_counter() - begin
        after = log.stats()
        log.close()
    return {
        "gc_events_per_s": events / seconds,
        "gc_kept_fraction": 1 - marked.dead_rows / events,
        "gc_disk_fraction": after.bytes / stored,
        "rewrite_mb_per_s": rewritten / rewriting / 1e6,
    }
