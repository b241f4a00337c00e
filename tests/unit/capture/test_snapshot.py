"""The window of a snapshot between its watermarks, on a datastore that is a dictionary and a list."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.capture import Column, Lost, Op, Run, Start, Table, Updates
from qanat.capture.snapshot import Chunk, Progress, snapshot, untouched
from qanat.events.errors import LocalError, RemoteError
from qanat.events.position import Position

TABLE = Table(
    "d",
    "",
    "t",
    (Column("a", pa.int64(), key=True), Column("b", pa.string(), key=True), Column("v", pa.int64())),
)
Key = tuple[int, str]


def run(op: Op, rows: list[tuple[int, str, int]], sequence: int = 0, table: Table = TABLE) -> Run:
    images = pa.RecordBatch.from_pylist([{"a": a, "b": b, "v": v} for a, b, v in rows], table.arrow)
    count = len(rows)
    return Run(
        table,
        np.full(count, op, np.uint8),
        np.full(count, sequence, np.uint64),
        np.arange(count, dtype=np.uint32),
        np.zeros(count, np.int64),
        pa.array([str(sequence)] * count, pa.string()).dictionary_encode(),
        None if op is Op.DELETE else images,
        images if op is Op.DELETE else None,
    )


class Store:
    """Changes at every touch: before and after a chunk is read, and with each read of its log."""

    def __init__(self, seed: int, exact: bool) -> None:
        self.random = random.Random(seed)
        self.exact = exact
        self.rows: dict[Key, int] = {(a, b): 0 for a in range(8) for b in "xy"}
        self.log: list[Run] = []
        self.at = 0
        self.busy = True
        self.source, self.identified = "store", True

    def write(self) -> None:
        for _ in range(self.random.randrange(4) if self.busy else 0):
            key = (self.random.randrange(10), self.random.choice("xyz"))
            sequence = len(self.log) + 1
            if self.random.random() < 0.3 and key in self.rows:
                self.log.append(run(Op.DELETE, [(*key, self.rows.pop(key))], sequence))
            else:
                self.rows[key] = sequence
                self.log.append(run(Op.PUT, [(*key, sequence)], sequence))

    def chunk(self, table: str, after: tuple[str, ...] | None, limit: int) -> Chunk:
        low = self.latest()
        if not self.exact:
            self.write()
        floor = None if after is None else (int(after[0]), after[1])
        keys = sorted(key for key in self.rows if floor is None or key > floor)
        found = [(*key, self.rows[key]) for key in keys[:limit]]
        if not self.exact:
            self.write()
        last = (str(found[-1][0]), found[-1][1]) if len(keys) > limit else None
        chunk = Chunk(run(Op.READ, found), low, self.latest(), last)
        self.write()
        return chunk

    def seek(self, start: Start) -> None:
        assert isinstance(start, Position)
        self.at = start.sequence

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        self.write()
        part = self.log[self.at : self.at + self.random.randint(1, 5)]
        self.at += len(part)
        return Updates(part, Position(self.at))

    def oldest(self) -> Position:
        return Position(0)

    def latest(self) -> Position:
        return Position(len(self.log))

    def close(self) -> None:
        pass


def apply(rows: dict[Key, int], updates: Updates) -> None:
    for update in updates.rows():
        image: dict[str, Any] | None = update.after or update.before
        assert image is not None
        if update.op is Op.DELETE:
            rows.pop((image["a"], image["b"]), None)
        else:
            rows[image["a"], image["b"]] = image["v"]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_the_result_is_the_table_under_concurrent_writes(seed: int, exact: bool) -> None:
    store = Store(seed, exact)
    progress = Progress(store.latest(), ("t",))
    rows: dict[Key, int] = {}
    places: list[Position] = []
    while not progress.done:  # stopped and resumed every few steps
        for step in snapshot(store, store, progress, chunk_rows=3):
            apply(rows, step.updates)
            progress = Progress.from_json(step.progress.to_json())
            if step.is_chunk:
                places += [update.position for update in step.updates.rows()]
            if store.random.random() < 0.3:
                break
    store.busy = False
    store.seek(progress.position)
    while store.at < len(store.log):
        part = store.read(10)
        assert isinstance(part, Updates)
        apply(rows, part)
    assert rows == store.rows
    assert places == sorted(set(places))


def test_rows_that_the_log_changed_are_left_out() -> None:
    rows = run(Op.READ, [(1, "x", 0), (1, "y", 0), (2, "x", 0), (3, "x", 0)])
    left = untouched(rows, [run(Op.PUT, [(1, "y", 5), (9, "x", 5)]), run(Op.DELETE, [(3, "x", 0)])])
    assert left is not None
    assert left.after is not None
    assert [(row["a"], row["b"]) for row in left.after.to_pylist()] == [(1, "x"), (2, "x")]


def test_a_table_that_was_changed_is_read_again() -> None:
    other = Table("d", "", "t", (*TABLE.columns, Column("w", pa.int64())))
    rows = run(Op.READ, [(1, "x", 0)])
    assert untouched(rows, [run(Op.PUT, [(9, "x", 0)], table=other)]) is None
    assert untouched(rows, [run(Op.TRUNCATE, [(9, "x", 0)])]) is None
    elsewhere = Table("d", "", "u", TABLE.columns)
    assert untouched(rows, [run(Op.PUT, [(1, "x", 0)], table=elsewhere)]) is rows


def test_a_gap_ends_a_snapshot() -> None:
    store = Store(1, exact=True)
    store.read = lambda limit, wait_s=0.0: Lost(Position(0), Position(9), "purged")  # type: ignore[method-assign]
    store.write()
    store.log.append(run(Op.PUT, [(1, "x", 1)], 1))
    with pytest.raises(RemoteError, match="take it anew"):
        list(snapshot(store, store, Progress(Position(0), ("t",))))


def test_what_is_no_progress_is_refused() -> None:
    with pytest.raises(LocalError, match="not the progress"):
        Progress.from_json('{"position": "x"}')
