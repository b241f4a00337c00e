"""A stream's batches as updates: what was an update, what is any other event, and what is gone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from qanat.capture import Lost, Updates
from qanat.capture.errors import MalformedLog
from qanat.capture.events import Events
from qanat.capture.losses import loss_event
from qanat.capture.stream import KEY, PAYLOAD, parts_of
from qanat.events.batch import Batch, Kind
from qanat.events.position import Position


def built(events: Events, first: int) -> Batch:
    return Batch.build(
        1,
        events.payloads,
        first=first,
        keys=events.keys,
        attributes=events.attributes,
        source="shop",
        positions=(events.sequences, events.indexes),
    )


def test_any_event_is_a_row() -> None:
    batch = Batch.build(
        1,
        [b"a", b"b"],
        first=5,
        keys=[b"k", b""],
        attributes=[{"price": 1, "mixed": 2}, {"mixed": "x"}],
        source="~me",
        position=1,
    )
    (updates,) = parts_of(batch, "prices")
    assert isinstance(updates, Updates)
    first, second = updates.rows()
    assert (first.position, first.table.name, first.transaction) == (Position(5, 0), "prices", "~me")
    assert first.after == {KEY: b"k", PAYLOAD: b"a", "price": 1, "mixed": "2"}
    assert second.after == {KEY: b"", PAYLOAD: b"b", "price": None, "mixed": "x"}
    assert updates.upto == Position(6, 0)


def test_what_was_collected_is_lost_in_its_place() -> None:
    kinds = [Kind.DATA, Kind.TOMBSTONE, Kind.TOMBSTONE, Kind.DATA]
    batch = Batch.build(
        1,
        [b"a", b"", b"", b"b"],
        first=1,
        kinds=kinds,
        seqs=np.array([1, 4, 5, 6]),
        ranges=np.array([1, 3, 1, 1]),
        span=6,
    )
    before, lost, after = parts_of(batch, "prices")
    assert isinstance(before, Updates)
    assert isinstance(after, Updates)
    assert isinstance(lost, Lost)
    assert (lost.after, lost.upto) == (Position(1, 0), Position(5, 0))
    assert (before.upto, after.upto) == (Position(1, 0), Position(6, 0))


def test_what_the_log_had_lost_is_passed_on() -> None:
    events = loss_event(Lost(Position(7, 0), Position(9, 3), "the files were purged"))
    assert (events.sequences.tolist(), events.indexes.tolist()) == ([9], [3])
    (lost,) = parts_of(built(events, 12), "prices")
    assert isinstance(lost, Lost)
    assert (lost.after, lost.upto) == (Position(11, 0), Position(12, 0))
    assert "after 7:0 and up to 9:3: the files were purged" in lost.reason


def test_an_event_that_only_looks_like_one_says_no_more_than_it_knows() -> None:
    odd = replace(loss_event(Lost(Position(7, 0), Position(9, 3), "")), payloads=pa.array([b"\xff"]))
    (lost,) = parts_of(built(odd, 1), "prices")
    assert isinstance(lost, Lost)
    assert "had lost updates" in lost.reason


def test_what_says_that_it_is_an_update_and_is_none_is_told_in_its_place() -> None:
    table = '[["id","int64","int",true]]'
    line = b'{"source":{"db":"shop","table":"t"},"op":"c"}'
    batch = Batch.build(
        1,
        [b"plain", b"{", b"other", line],
        first=5,
        attributes=[{}, {"#columns": table}, {}, {"#columns": "{"}],
        source="~me",
        position=1,
    )
    first, bad, second, worse = parts_of(batch, "prices")
    assert isinstance(first, Updates) and isinstance(second, Updates)
    assert isinstance(bad, MalformedLog) and isinstance(worse, MalformedLog)
    assert (bad.position, bad.resume, bad.original) == (Position(6, 0), Position(6, 0), b"{")
    assert (worse.position, worse.original) == (Position(8, 0), line)
    assert "event 6 of the stream" in str(bad)
