"""RocksDB's log: what was encoded comes back, whatever it was and wherever the file was cut; and what was
mutated breaks nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.servers.rocksdb import (
    NOOP,
    batch,
    delete,
    delete_range,
    log_data,
    log_file,
    merge,
    put,
    single_delete,
)

from qanat.capture.rocksdb.columns import Rows
from qanat.capture.rocksdb.decode_batches import decode
from qanat.capture.rocksdb.decode_records import State, scan
from qanat.capture.updates import Op, Updates
from qanat_workshop.fuzz import run

keys = st.binary(max_size=300)
families = st.sampled_from([None, 0, 1, 127, 128, 70_000])
Row = tuple[Op, int, bytes, bytes | None]


@st.composite
def entries(draw: st.DrawFn) -> tuple[bytes, Row | None]:
    kind = draw(st.integers(0, 6))
    key, value, family = draw(keys), draw(st.binary(max_size=400)), draw(families)
    number = family or 0
    match kind:
        case 0:
            return delete(key, family), (Op.DELETE, number, key, None)
        case 1:
            return single_delete(key, family), (Op.DELETE, number, key, None)
        case 2:
            return merge(key, value, family), (Op.MERGE, number, key, value)
        case 3:
            return delete_range(key, value, family), (Op.DELETE_RANGE, number, key, value)
        case 4:
            return draw(st.sampled_from([NOOP, log_data(key)])), None
        case _:
            return put(key, value, family), (Op.PUT, number, key, value)


@st.composite
def even(draw: st.DrawFn) -> list[tuple[bytes, Row | None]]:
    """Entries of one shape, as applications write them."""
    size, family = draw(st.integers(0, 200)), draw(families)
    found: list[tuple[bytes, Row | None]] = []
    for number in range(draw(st.integers(1, 30))):
        key, value = b"%05d" % number, bytes([number]) * size
        found.append((put(key, value, family), (Op.PUT, family or 0, key, value)))
    return found


batches = st.lists(st.one_of(st.lists(entries(), max_size=6), even()), max_size=25)


@settings(max_examples=examples(60), deadline=None)
@given(batches, st.booleans(), st.data())
def test_what_was_written_comes_back(
    written: list[list[tuple[bytes, Row | None]]], recyclable: bool, data: st.DataObject
) -> None:
    expected: list[tuple[int, int, Row]] = []
    records = []
    sequence = 1
    for each in written:
        counted = [row for _, row in each if row is not None]
        records.append(batch(sequence, *(entry for entry, _ in each), count=len(counted)))
        expected += [(sequence, index, row) for index, row in enumerate(counted)]
        sequence += len(counted)
    number = 77 if recyclable else None
    log = log_file(records, number=number)
    cut = data.draw(st.integers(0, len(log)))
    first = scan(log[:cut], State(), 77)
    offset = int(first.nexts[-1]) if len(first.nexts) else 0
    rest = scan(log[offset:], State(offset, first.recyclable), 77)
    assert not first.problem and not rest.problem and not rest.torn
    found = []
    for part in (first, rest):
        rows = Rows("shop", str, decode(part.data, part.starts, part.ends))
        for update in Updates(rows.runs(0, len(rows))).rows():
            before, after = update.before or {}, update.after or {}
            ranged = update.op == Op.DELETE_RANGE
            value = after.get("key") if ranged else after.get("value")
            row = (update.op, int(update.table.name), (before or after)["key"], value)
            found.append((*update.position, row))
    assert found == expected


def test_mutated_logs_break_nothing() -> None:
    report = run("rocksdb", 3, 0, 3000, 1 << 33)
    assert not report.found and 0 < report.refused < report.inputs
