"""pgoutput: a real stream with every kind of message, and streams that are none."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from qanat.capture import Op, Run
from qanat.capture.errors import MalformedLog
from qanat.capture.postgres.assemble import Assembler, Boundary, Marker
from qanat.capture.postgres.positions import before, logical_position, lsn_text, own_position, parse_lsn
from qanat.capture.postgres.types import declared, precision_and_scale, type_of
from qanat.capture.updates import Update, Updates
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat_workshop.samples.postgres import corpus, decode_file, file_of, messages_of, sample

ROWS = list(decode_file(sample()).rows())
UTC = datetime.UTC


def of(table: str) -> list[Update]:
    return [update for update in ROWS if update.table.name == table]


@pytest.mark.paper("W2")
def test_types_survive() -> None:
    first, second = of("t")[:2]
    assert first.after is not None
    assert second.after is not None
    shown = {**first.after, "f": repr(first.after["f"])}
    assert shown == {
        "id": 1,
        "a": "x",
        "n": Decimal("1.50"),
        "d": datetime.datetime(2023, 12, 31, 22, 0, 0, 500000, UTC),
        "b": b"\xde\xad\xbe\xef",
        "ok": True,
        "e": "sad",
        "m": "2.50",
        "j": '{"a": 1}',
        "l": "{1,2}",
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "tm": datetime.time(12, 0, 0, 500000),
        "dt": datetime.date(2024, 2, 29),
        "f": "1.5",
    }
    # What a type cannot hold comes as text, in a version of the table that says so; NULL and empty are told
    # apart.
    assert second.table != first.table
    assert (second.after["n"], second.after["d"], second.after["dt"]) == ("NaN", "infinity", "0044-03-15 BC")
    assert (second.after["tm"], second.after["b"], second.after["a"]) == ("24:00:00", b"", None)
    assert [(column.name, column.declared) for column in second.table.columns if column.type == pa.string()][
        :3
    ] == [
        ("a", "text"),
        ("n", "numeric(10,2)"),
        ("d", "timestamptz"),
    ]


def test_values_out_of_line_that_did_not_change_are_left_out() -> None:
    update = next(one for one in of("t") if one.unchanged)
    assert update.unchanged == ("a",)
    assert update.after is not None
    assert update.after["n"] == Decimal("3.00")
    assert "a" not in update.after


def test_images_before_are_what_the_replica_identity_gives() -> None:
    moved = next(one for one in of("t") if one.before is not None)
    assert (moved.op, moved.before) == (Op.UPDATE, {"id": 1})
    deleted = next(one for one in of("t") if one.op == Op.DELETE)
    assert (deleted.before, deleted.after) == ({"id": 2}, None)
    whole = next(one for one in of("f") if one.op == Op.UPDATE)
    assert (whole.before, whole.after) == ({"id": 1, "v": ""}, {"id": 1, "v": "w"})


def test_tables_interleave_in_the_order_of_the_transaction() -> None:
    together = [one for one in ROWS if one.transaction == of("p")[0].transaction]
    assert [(one.table.name, one.position.index) for one in together] == [
        ("f", 0),
        ("f", 1),
        ("p", 2),
        ("f", 3),
    ]


def test_a_table_that_was_altered_has_another_version() -> None:
    added = next(one for one in of("t") if one.after is not None and "z" in one.after)
    assert added.after is not None
    assert (added.after["id"], added.after["z"]) == (9, "zz")
    assert [one.table.name for one in ROWS if one.op == Op.TRUNCATE] == ["t", "f"]


def test_parts_of_a_large_transaction_count_when_it_commits_and_what_was_rolled_back_does_not() -> None:
    parts = [one for one in of("p") if one.after is not None and "xx" in one.after["k"]]
    kinds = [message[:1] for message in messages_of(sample())]
    assert (kinds.count(b"S"), kinds.count(b"A"), kinds.count(b"c")) == (3, 1, 1)
    inserted = kinds[kinds.index(b"A") :].count(b"I")
    assert [one.position.index for one in parts] == list(range(inserted))
    assert len({one.position.sequence for one in parts}) == 1


def test_positions_rise_and_messages_of_others_are_markers() -> None:
    positions = [one.position for one in ROWS]
    assert positions == sorted(set(positions))
    items = list(Assembler("d").feed(messages_of(sample())))
    assert [item.content for item in items if isinstance(item, Marker)][:2] == [b"hello", b"hello"]
    ends = [item.lsn for item in items if isinstance(item, Boundary)]
    assert ends == sorted(ends)
    assert before(ends[-1]) > positions[-1]


def test_however_the_stream_is_cut_the_updates_are_the_same() -> None:
    messages = messages_of(sample())
    rng = random.Random(7)
    for _ in range(20):
        assembler, cut, runs = Assembler("sample"), 0, []
        while cut < len(messages):
            size = rng.choice([1, 2, 5, 30])
            runs += [item for item in assembler.feed(messages[cut : cut + size]) if isinstance(item, Run)]
            cut += size
        assert list(map(repr, Updates(runs).rows())) == list(map(repr, ROWS))


@pytest.mark.parametrize(
    "piece", range(len(corpus()) - 1)
)  # of the last, what was rolled back is not looked at
def test_a_message_that_is_cut_short_is_refused(piece: int) -> None:
    messages = messages_of(corpus()[piece])
    for at, message in enumerate(messages):
        for size in {0, 1, 3, len(message) // 2, len(message) - 1} & set(range(len(message))):
            short = file_of([*messages[:at], message[:size], *messages[at + 1 :]])
            if message[:1] in b"EO" or (message[:1] == b"S" and size):
                continue
            with pytest.raises(MalformedLog):
                decode_file(short)


def test_unknown_and_misplaced_messages_are_refused() -> None:
    messages = messages_of(corpus()[0])
    begin, commit = messages[0], messages[-1]
    for wrong in (
        [b"?"],
        [commit],
        [begin, begin],
        messages[3:],
        [b"E"],
        [b"c" + bytes(29)],
        [b"S" + bytes(4) + b"\0"],
    ):
        with pytest.raises(MalformedLog):
            decode_file(file_of(wrong))


def test_types_are_called_as_they_are_declared() -> None:
    assert declared("numeric", (10 << 16 | 2) + 4) == "numeric(10,2)"
    assert precision_and_scale((5 << 16 | (-3 & 0x7FF)) + 4) == (5, -3)
    assert type_of("numeric", (5 << 16 | (-3 & 0x7FF)) + 4).arrow == pa.string()
    assert type_of("numeric", (50 << 16 | 2) + 4).arrow == pa.decimal256(50, 2)
    assert (declared("varchar", 24), declared("timestamptz", 3), declared("text", -1)) == (
        "varchar(20)",
        "timestamptz(3)",
        "text",
    )


def test_log_sequence_numbers_map_to_positions() -> None:
    assert lsn_text(parse_lsn("16/B374D848")) == "16/B374D848"
    assert own_position(Position(parse_lsn("1/0"), 3)) == "1/0"
    assert logical_position("0/10") == Position(15, 0)
    with pytest.raises(LocalError, match="16/B374D848"):
        parse_lsn("GTID 0-1-2")
