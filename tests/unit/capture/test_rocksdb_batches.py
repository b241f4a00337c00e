"""Write batches into columns, and two-phase commits into plain batches."""

from __future__ import annotations

import numpy as np
import pytest
from tests.servers.rocksdb import (
    NOOP,
    batch,
    commit,
    delete,
    delete_range,
    log_data,
    merge,
    prepared,
    put,
    put_entity,
    rollback,
    single_delete,
    text,
)

from qanat.capture.errors import MalformedLog
from qanat.capture.rocksdb.columns import Rows
from qanat.capture.rocksdb.decode_batches import TwoPhase, decode, entity_columns
from qanat.capture.rocksdb.transactions import Prepared, Resolved, resolve
from qanat.capture.updates import Op, Update, Updates
from qanat.events.position import Position


def joined(*batches: bytes) -> tuple[bytes, np.ndarray, np.ndarray]:
    ends = np.cumsum([len(each) for each in batches])
    return b"".join(batches), ends - [len(each) for each in batches], ends


def updates(*batches: bytes) -> list[Update]:
    rows = Rows("shop", {0: "default", 1: "prices"}.__getitem__, decode(*joined(*batches)))
    return list(Updates(rows.runs(0, len(rows))).rows())


def told(update: Update) -> tuple[object, ...]:
    return (tuple(update.position), update.op, update.table.name, update.before, update.after)


@pytest.mark.paper("W1")
def test_every_kind_of_entry_is_an_update() -> None:
    big = b"v" * 300
    entries = [
        put(b"a", b"1"),
        put(b"", b"", 1),
        delete(b"a"),
        delete(b"b", 1),
        single_delete(b"c"),
        single_delete(b"d", 1),
        merge(b"e", big),
        merge(b"f", b"+1", 1),
        delete_range(b"g", b"h"),
        delete_range(b"i", b"j", 1),
    ]
    expected = [
        (Op.PUT, "default", None, {"key": b"a", "value": b"1"}),
        (Op.PUT, "prices", None, {"key": b"", "value": b""}),
        (Op.DELETE, "default", {"key": b"a"}, None),
        (Op.DELETE, "prices", {"key": b"b"}, None),
        (Op.DELETE, "default", {"key": b"c"}, None),
        (Op.DELETE, "prices", {"key": b"d"}, None),
        (Op.MERGE, "default", None, {"key": b"e", "value": big}),
        (Op.MERGE, "prices", None, {"key": b"f", "value": b"+1"}),
        (Op.DELETE_RANGE, "default", {"key": b"g"}, {"key": b"h", "value": None}),
        (Op.DELETE_RANGE, "prices", {"key": b"i"}, {"key": b"j", "value": None}),
    ]
    together = [told(update) for update in updates(batch(7, *entries))]
    assert together == [((7, index), *row) for index, row in enumerate(expected)]
    apart = [told(update) for update in updates(*(batch(9 + n, entry) for n, entry in enumerate(entries)))]
    assert apart == [((9 + n, 0), *row) for n, row in enumerate(expected)]


def test_what_takes_no_sequence_number_is_no_update() -> None:
    found = updates(batch(5, NOOP, log_data(b"x" * 200), put(b"a", b"1"), log_data(b""), count=1), batch(6))
    assert [told(update)[0] for update in found] == [(5, 0)]


def test_an_entity_has_its_columns() -> None:
    entity = b"\x01\x02" + text(b"") + b"\x01" + text(b"name") + b"\x03" + b"0" + b"xyz"
    (update,) = updates(batch(1, put_entity(b"k", entity, 1)))
    assert update.op == Op.PUT and update.after == {"key": b"k", "entity": entity}
    assert entity_columns(entity) == {b"": b"0", b"name": b"xyz"}
    with pytest.raises(MalformedLog):
        entity_columns(entity + b"?")


@pytest.mark.parametrize("count", [1, 3, 4, 5, 1000])
@pytest.mark.parametrize("size", [0, 90, 127, 128, 20_000])
def test_entries_of_one_shape_are_what_a_walk_finds(count: int, size: int) -> None:
    plain = [put(b"%06d" % n, bytes([n % 251]) * size, 300) for n in range(count)]
    even = decode(*joined(batch(1, *plain)))
    uneven = decode(*joined(batch(1, NOOP, *plain, count=count)))
    for strided, walked in zip(even[3:5], uneven[3:5], strict=True):
        assert (strided == walked).all()
    for strided, walked in zip(even[5:], uneven[5:], strict=True):
        assert (strided + 1 == walked).all()


def test_batches_alike_are_decoded_together_and_those_between_them_by_themselves() -> None:
    """Some have as many bytes and entries as their neighbours, but lengths or families of their own."""
    alike = [[put(b"k%d" % row, b"v%d%d" % (number, row)) for row in range(4)] for number in range(6)]
    others = [
        [put(b"%03d" % row, b"v%d" % row) for row in range(4)],
        [put(b"k%d" % row, b"%d" % row, row % 2) for row in range(4)],
        [put(b"k", b"1"), put(b"k", b"22"), put(b"kk", b"1"), put(b"k2", b"4444")],
        [delete(b"k%d" % row) for row in range(5)],
        [put(b"one", b"1")],
    ]
    batches = [entries for pair in zip(alike, others, strict=False) for entries in pair] + alike[
        len(others) :
    ]
    made = [batch(10 * number, *entries) for number, entries in enumerate(batches)]
    found = [told(update) for update in updates(*made)]
    assert found == [told(update) for one in made for update in updates(one)]
    assert len(found) == sum(map(len, batches))


def test_a_length_that_differs_in_the_middle_is_seen() -> None:
    entries = [put(b"ab", b"cdef"), put(b"abc", b"def"), put(b"ab", b"cdef"), put(b"ab", b"cdef")]
    found = updates(batch(1, *entries))
    assert [update.after for update in found][1] == {"key": b"abc", "value": b"def"}


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"\x01" * 11, "shorter than its header"),
        (batch(1, put(b"a", b"b"), count=2), "entries"),
        (batch(1, put(b"a", b"b"), put(b"c", b"d"), count=1), "entries"),
        (batch(1, count=0xFFFFFFFF), "no room"),
        (batch(1, put(b"a", b"b")[:-1], b"", count=1), "beyond its end"),
        (batch(1, b"\x01\xff\xff\xff\xff\xff\x01", count=1), "too large"),
        (batch(1, b"\x01\xff\xff\xff\xff\x7f\x01", count=1), "too large"),
        (batch(1, b"\x7e\x01a", count=1), "unknown kind"),
        (batch(1, b"\x11\x01a\x01b", count=1), "blob file"),
        (batch(1, b"\x14\x01a", count=1), "timestamp"),
    ],
)
def test_what_the_format_does_not_allow_is_refused(damaged: bytes, why: str) -> None:
    with pytest.raises(MalformedLog, match=why):
        decode(*joined(batch(1, put(b"k", b"v")), damaged))
    with pytest.raises(MalformedLog, match=why):
        decode(*joined(damaged))


def committed(resolved: Resolved) -> list[tuple[Position, bytes]]:
    rows = Rows("shop", lambda _: "default", decode(resolved.data, resolved.starts, resolved.ends))
    found = Updates(rows.runs(0, len(rows))).rows()
    return [(update.position, (update.after or {})["key"]) for update in found]


def test_prepared_entries_count_where_they_are_committed() -> None:
    kept = Prepared()
    batches = [
        batch(5, prepared(b"x", put(b"a", b"1"), put(b"b", b"2")), put(b"c", b"3"), count=3),
        batch(6, prepared(b"y", put(b"d", b"4")), NOOP, count=1),
        batch(6, put(b"e", b"5"), commit(b"x"), put(b"f", b"6"), count=2),
        batch(10, rollback(b"y"), count=0),
        batch(10, put(b"g", b"7")),
    ]
    with pytest.raises(TwoPhase):
        decode(*joined(*batches))
    resolved = resolve(*joined(*batches), kept)
    assert resolved.missing is None
    found = [((5, 0), b"c"), ((6, 0), b"e"), ((6, 1), b"a"), ((6, 2), b"b"), ((6, 3), b"f"), ((10, 0), b"g")]
    assert committed(resolved) == found
    again = resolve(*joined(batch(11, put(b"h", b""), count=1), batch(12, commit(b"x"), count=0)), kept)
    assert again.missing == b"x" and len(again.starts) == 1


@pytest.mark.parametrize(
    "entries",
    [
        (b"\x09", put(b"a", b"b")),
        (b"\x09", b"\x09"),
        (b"\x0a\x01x",),
        (commit(b"xyz")[:-1],),
        (b"\x12",),
        (b"\x13",),
        (b"\x09", commit(b"x")),
    ],
)
def test_marks_out_of_order_are_refused(entries: tuple[bytes, ...]) -> None:
    with pytest.raises(MalformedLog):
        resolve(*joined(batch(1, *entries, count=1)), Prepared())
