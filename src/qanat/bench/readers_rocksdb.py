"""How fast the write-ahead log of a RocksDB is read, beside a plain loop over the same files, and how soon
after a write."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from qanat.bench.reader_figures import beside, in_rounds, percentiles, rows_per_s
from qanat.capture.rocksdb.decode_batches import varint
from qanat.capture.rocksdb.decode_records import BLOCK_BYTES, State, scan
from qanat.capture.url import open_reader
from qanat.events.errors import RemoteError

DESCRIPTION = (
    "RocksDB's log files in rows/s of 100 bytes: batches of 1,000, single puts, rows of uneven size; write to"
    " update"
)
ROWS = 400_000
LOOP_SHARE = 8
"""The plain loop reads so small a part of the same log."""
WRITES = 300
_KINDS = {"rocksdb": (1000, 0), "rocksdb_single": (1, 0), "rocksdb_uneven": (1000, 30)}
"""Figure → rows in a batch, and by how much their sizes differ."""

_WRITER = """
import sys, time
from rocksdict import Options, Rdict, WriteBatch
folder, rows, batch, spread = sys.argv[1], *map(int, sys.argv[2:])
options = Options(raw_mode=True)
options.create_if_missing(True)
options.set_wal_ttl_seconds(3600)
options.set_write_buffer_size(1 << 30)
database = Rdict(folder, options)
value = bytes(range(256))
for first in range(0, rows, batch):
    written = WriteBatch(raw_mode=True)
    for row in range(first, first + batch):
        written.put(b"%016d" % row, value[: 84 + row % (2 * spread + 1) - spread])
    database.write(written)
print("written", flush=True)
for line in sys.stdin:
    database[line.encode()] = value
    print(time.time_ns(), flush=True)
"""


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, which all read the same log."""
    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-"))
    writers = []
    try:
        for name, (batch, spread) in _KINDS.items():
            writers.append(_start(folder / name, batch, spread))
        return in_rounds(rounds, lambda number: _rates(folder, number), say) | _latency(
            folder / "rocksdb", writers[0]
        )
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
        shutil.rmtree(folder)


def _rates(folder: Path, number: int) -> dict[str, float]:
    store = folder / "rocksdb"
    compared = beside("rocksdb", "rocksdb_loop", lambda: _read(store), lambda: _loop(store), number)
    return compared | {f"{name}_rows_per_s": _read(folder / name) for name in _KINDS if name != "rocksdb"}


def _start(folder: Path, batch: int, spread: int) -> subprocess.Popen[str]:
    """A process that has written the rows, keeps the database open, and then writes one for each line that it
    is given."""
    words = [sys.executable, "-c", _WRITER, str(folder), str(ROWS), str(batch), str(spread)]
    writer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    if writer.stdout.readline().strip() != "written":
        raise RemoteError("the process that writes to a RocksDB broke off; is rocksdict installed?")
    return writer


def _read(folder: Path) -> float:
    with closing(open_reader(f"rocksdb://{folder}")) as reader:
        reader.seek("earliest")
        return rows_per_s(reader, ROWS)


def _loop(folder: Path) -> float:
    """Entry by entry, into tuples of key and value."""
    data = next(folder.glob("*.log")).read_bytes()[: 128 * BLOCK_BYTES]
    began = time.perf_counter()
    found = scan(data, State(), 0)
    rows: list[tuple[bytes, bytes]] = []
    for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True):
        at = start + 12
        while at < end and len(rows) < ROWS // LOOP_SHARE:
            length, at = varint(found.data, at + 1, end)
            key = found.data[at : at + length]
            length, at = varint(found.data, at + length, end)
            rows.append((key, found.data[at : at + length]))
            at += length
    return len(rows) / (time.perf_counter() - began)


def _latency(folder: Path, writer: subprocess.Popen[str]) -> dict[str, float]:
    """From when a write returned in its process until its update is in hand in this one."""
    assert writer.stdin is not None and writer.stdout is not None
    taken = []
    with closing(open_reader(f"rocksdb://{folder}")) as reader:
        reader.seek("latest")
        reader.read(1)
        for number in range(WRITES):
            writer.stdin.write(f"late{number}\n")
            writer.stdin.flush()
            while not len(reader.read(10, 10)):
                pass
            had = time.time_ns()
            taken.append(max(had - int(writer.stdout.readline()), 0) / 1e6)
    return percentiles("rocksdb", taken)
