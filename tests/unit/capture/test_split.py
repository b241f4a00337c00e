"""Updates that change a key, as a deletion and an insertion: what comes of them, where one resumes, and who
is warned."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.capture import Column, LogReader, Lost, Op, Run, Table, Updates
from qanat.capture.continuity import Expecting, Mark, mark_of
from qanat.capture.errors import MalformedLog
from qanat.capture.reader import Acknowledging, Dividing, Start
from qanat.capture.sharding import Sharding, shards
from qanat.capture.split import LAST_INDEX, narrow, split, wide
from qanat.capture.updates import Update
from qanat.capture.url import split_warning
from qanat.events.errors import LocalError
from qanat.events.position import Position

ROWS = Table("shop", "", "rows", (Column("id", pa.int64(), key=True), Column("country", pa.string())))
Image = dict[str, Any] | None


def run(*rows: tuple[int, int, Op, Image, Image], key_only: bool = False) -> Run:
    """Each of sequence, index, operation, before, after."""

    def image(values: list[Image]) -> pa.RecordBatch | None:
        return pa.RecordBatch.from_pylist([v or {} for v in values], ROWS.arrow) if any(values) else None

    return Run(
        ROWS,
        np.array([row[2] for row in rows], np.uint8),
        np.array([row[0] for row in rows], np.uint64),
        np.array([row[1] for row in rows], np.uint32),
        np.zeros(len(rows), np.int64),
        pa.array([f"t{row[0]}" for row in rows]).dictionary_encode(),
        image([row[4] for row in rows]),
        image([row[3] for row in rows]),
        np.array([row[4] is not None for row in rows]),
        np.array([row[3] is not None for row in rows]),
        None,
        np.array([row[3] is not None for row in rows]) if key_only else None,
    )


LOG = run(
    (5, 0, Op.INSERT, None, {"id": 1, "country": "FR"}),
    (5, 1, Op.INSERT, None, {"id": 2, "country": "DE"}),
    (7, 0, Op.UPDATE, {"id": 1, "country": "FR"}, {"id": 3, "country": "FR"}),
    (7, 1, Op.UPDATE, {"id": 2, "country": "DE"}, {"id": 2, "country": "CH"}),
    (9, 0, Op.UPDATE, {"id": 3, "country": "FR"}, {"id": 4, "country": "IT"}),
    (9, 1, Op.UPDATE, {"id": 4, "country": "IT"}, {"id": 1, "country": "IT"}),
    (9, 2, Op.DELETE, {"id": 2, "country": "CH"}, None),
)


class Memory(LogReader):
    """A log in memory, which has each position's row behind it, as a real one has."""

    source, identified = "memory", True

    def __init__(self, log: Run = LOG) -> None:
        self.log, self.at = log, Position(0)
        self.acknowledged: list[Any] = []
        self.expected: Mark | None = None

    def seek(self, start: Start) -> None:
        assert isinstance(start, Position)
        self.at = start

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        left = Updates([self.log]).after(self.at)
        if not left:
            return Updates()
        found = Updates([left.runs[0].slice(0, limit)])
        assert found.upto is not None
        self.at = found.upto
        return found

    def oldest(self) -> Position:
        return Position(0)

    def latest(self) -> Position:
        return Position(9, LAST_INDEX)

    def close(self) -> None:
        pass

    def acknowledge(self, position: Position, resume: Position | None = None) -> None:
        self.acknowledged.append((position, resume))

    def advance(self, position: Position) -> None:
        self.acknowledged.append(position)

    def expect(self, last: Mark) -> None:
        self.expected = last


def rest(reader: LogReader, after: Position, limit: int = 2) -> list[Update]:
    reader.seek(after)
    found: list[Update] = []
    while part := reader.read(limit):
        assert isinstance(part, Updates)
        found += part.rows()
    return found


def forget(reader: Memory) -> None:
    reader.expected = None


def told(updates: Sequence[Update]) -> list[tuple[str, Image, Image]]:
    return [(update.op.name, update.before, update.after) for update in updates]


def test_a_key_that_changes_is_a_deletion_and_an_insertion() -> None:
    found = rest(split(Memory(), "key"), Position(0))
    assert told(found) == [
        ("INSERT", None, {"id": 1, "country": "FR"}),
        ("INSERT", None, {"id": 2, "country": "DE"}),
        ("DELETE", {"id": 1, "country": "FR"}, None),
        ("INSERT", None, {"id": 3, "country": "FR"}),
        ("UPDATE", {"id": 2, "country": "DE"}, {"id": 2, "country": "CH"}),
        ("DELETE", {"id": 3, "country": "FR"}, None),
        ("INSERT", None, {"id": 4, "country": "IT"}),
        ("DELETE", {"id": 4, "country": "IT"}, None),
        ("INSERT", None, {"id": 1, "country": "IT"}),
        ("DELETE", {"id": 2, "country": "CH"}, None),
    ]
    positions = [update.position for update in found]
    assert positions == sorted(set(positions))


def test_each_half_is_in_its_own_shard_and_a_table_by_shard_and_key_has_no_row_left_behind() -> None:
    by_hash = Sharding.parse("hash:64")

    def tables(reader: LogReader) -> dict[Any, Any]:
        reader.seek(Position(0))
        part = reader.read(100)
        assert isinstance(part, Updates)
        rows: dict[Any, Any] = {}
        for one in part.runs:
            found = shards(one, by_hash)
            assert found is not None
            for shard, update in zip(found.to_pylist(), one.rows(), strict=True):
                if update.after is None:
                    assert update.before is not None
                    rows.pop((shard, update.before["id"]), None)
                else:
                    rows[shard, update.after["id"]] = update.after
        return rows

    assert [row["id"] for row in tables(split(Memory(), "key")).values()] == [1]
    assert len(tables(Memory())) == 3  # as it was


def test_a_column_can_be_what_a_row_is_known_by() -> None:
    ops = [op for op, _, _ in told(rest(split(Memory(), "key, country"), Position(0)))]
    assert ops == ["INSERT"] * 2 + ["DELETE", "INSERT"] * 4 + ["DELETE"]
    alone = run((1, 0, Op.UPDATE, {"id": 1, "country": "FR"}, {"id": 1, "country": "DE"}))
    assert len(rest(split(Memory(alone), "key,country"), Position(0))) == 2


def test_who_has_no_old_value_of_such_a_column_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    """As PostgreSQL's log without REPLICA IDENTITY FULL."""
    partial = run(
        (1, 0, Op.UPDATE, None, {"id": 1, "country": "DE"}),
        (1, 1, Op.UPDATE, {"id": 1}, {"id": 2, "country": "DE"}),
        (2, 0, Op.UPDATE, None, {"id": 2, "country": "FR"}),
        key_only=True,
    )
    reader = split(Memory(partial), "key,country")
    with caplog.at_level(logging.WARNING, "qanat.capture"):
        found = rest(reader, Position(0), 1)
    assert told(found)[1:3] == [("DELETE", {"id": 1}, None), ("INSERT", None, {"id": 2, "country": "DE"})]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("updates that change country are not split: the log of shop.rows has no old value")
    assert said.endswith(" (PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL)")


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_it_resumes_behind_either_half(limit: int) -> None:
    reader = split(Memory(), "key")
    everything = rest(reader, Position(0))
    for number, update in enumerate(everything):
        assert rest(reader, update.position, limit) == everything[number + 1 :]
        reader.seek(update.position)
        part = reader.read(limit)
        assert part.upto is None or part.upto >= update.position


@given(st.integers(0, 1 << 60), st.one_of(st.integers(0, (1 << 30) - 2), st.just(LAST_INDEX)))
def test_positions_go_there_and_back(sequence: int, index: int) -> None:
    position = Position(sequence, index)
    assert narrow(wide(position)) == position
    assert narrow(wide(position)._replace(index=max(wide(position).index - 2, 0))) <= position


def test_what_a_reader_can_do_beside_reading_it_can_still_do() -> None:
    inner = Memory()
    reader = split(inner, "key")
    assert isinstance(reader, Acknowledging)
    assert isinstance(reader, Expecting)
    assert not isinstance(reader, Dividing)
    reader.acknowledge(
        Position(7, 1), Position(5, 7)
    )  # the deletion of the first row of 7 is had, its insertion is not
    reader.advance(Position(9, LAST_INDEX))
    assert inner.acknowledged == [(Position(6, LAST_INDEX), Position(5, 1)), Position(9, LAST_INDEX)]
    found = rest(reader, Position(0), 100)
    whole = split(Memory(), "key").read(100)
    assert isinstance(whole, Updates)
    for row, update in enumerate(found):
        forget(inner)
        reader.expect(mark_of(whole.runs[0], row))
        if update.op is Op.DELETE and update.position.sequence != 9:
            assert inner.expected is None
        elif inner.expected is not None:
            log_row = int(
                np.flatnonzero(
                    (LOG.sequences == inner.expected.position.sequence)
                    & (LOG.indexes == inner.expected.position.index)
                )[0]
            )
            assert inner.expected == mark_of(LOG, log_row)


def test_losses_and_records_that_cannot_be_read_have_their_places_in_the_new_numbering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = Memory()
    reader = split(inner, "key")
    monkeypatch.setattr(inner, "read", lambda *_: Lost(Position(1, 0), Position(2, LAST_INDEX), "purged"))
    assert reader.read(1) == Lost(Position(1, 3), Position(2, LAST_INDEX), "purged")
    error = MalformedLog("bad", position=Position(3, 1), resume=Position(3, LAST_INDEX))

    def fail(*_: Any) -> Updates:
        raise error

    monkeypatch.setattr(inner, "read", fail)
    with pytest.raises(MalformedLog) as raised:
        reader.read(1)
    assert (raised.value.position, raised.value.resume) == (Position(3, 7), Position(3, LAST_INDEX))
    assert error.position == Position(3, 1)


def test_another_source_another_numbering() -> None:
    assert split(Memory(), "key").source == "memory/split"
    assert split(Memory(), "key,country").source == "memory/split/country"
    inner = Memory()
    assert split(inner, "") is inner
    assert split(inner, "never") is inner
    with pytest.raises(LocalError, match="write split=key"):
        split(inner, "country")
    with pytest.raises(LocalError, match="more than"):
        rest(split(Memory(replace(LOG, indexes=LOG.indexes + np.uint32(1 << 30))), "key"), Position(0))


@pytest.mark.parametrize(
    ("url", "sharding", "says"),
    [
        ("mariadb://h/d", "", ""),
        ("mariadb://h/d", "hash:4", "?split=key in"),
        ("postgresql://h/d", "country", "?split=key,country in"),
        ("postgresql://h/d?split=key", "country", "?split=key,country in"),
        ("postgresql://h/d?split=key,country", "country", ""),
        ("mariadb://h/d?split=key", "hash:4", ""),
        ("mariadb://h/d?split=never", "hash:4", ""),
        ("rocksdb:///d", "hash:4", ""),
    ],
)
def test_who_reads_by_shards_is_warned(url: str, sharding: str, says: str) -> None:
    found = split_warning(url, Sharding.parse(sharding))
    assert says in found
    assert bool(found) == bool(says)
