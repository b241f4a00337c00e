"""The decoder on a real log of MariaDB 10.11: types, images, positions, changes of tables, and what it
refuses."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from qanat.capture import Op
from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb.decode import LAST_INDEX, Decoder
from qanat.capture.mariadb.decode_events import Kind
from qanat.capture.mariadb.packets import Packets
from qanat.capture.updates import Update
from qanat.events.errors import RemoteError
from qanat.events.position import Position
from qanat_workshop.samples.mariadb import decode_file, events_of, sample, unchecked

ALL = list(decode_file(sample()).rows())
UTC = dt.UTC


def of(sequence: int) -> list[Update]:
    return [update for update in ALL if update.position.sequence == sequence]


@pytest.mark.paper("W1")
def test_types_survive() -> None:
    (update,) = of(3)
    expected: dict[str, Any] = {
        "id": 1,
        "t1": -128,
        "t1u": 255,
        "s2": -32768,
        "s2u": 65535,
        "m3": -8388608,
        "m3u": 16777215,
        "i4u": 2**32 - 1,
        "b8": -(2**63),
        "b8u": 2**64 - 1,
        "f": 1.5,
        "d": -2.25,
        "dec1": Decimal("-12345678.91"),
        "dec2": Decimal("12345678901234567890123456789012345.123456789012345678901234567890"),
        "dec3": Decimal("-99999999999999999999"),
        "dec4": Decimal("-0.12345"),
        "dec5": Decimal("123456789.123456789"),
        "da": dt.date(2024, 2, 29),
        "ti": -dt.timedelta(hours=838, minutes=59, seconds=59),
        "ti3": dt.timedelta(hours=12, minutes=34, seconds=56, milliseconds=789),
        "ti6": dt.timedelta(microseconds=-1),
        "dt": dt.datetime(1000, 1, 1),  # noqa: DTZ001
        "dt2": dt.datetime(2024, 12, 31, 23, 59, 59, 990000),  # noqa: DTZ001
        "dt6": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        "ts": dt.datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC),
        "ts1": dt.datetime(2001, 1, 1, 0, 0, 0, 500000, tzinfo=UTC),
        "ts6": dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        "y": 2155,
        "b1": 1,
        "b12": 0b101010101010,
        "b64": 2**64 - 1,
        "e": "ü",
        "st": "x,z",
        "c": "añb",
        "c300": "z",
        "vc": "",
        "vcl": "é",
        "lat": "é",
        "bi": b"ab\0\0",
        "vb": b"",
        "tb": b"\0",
        "bl": b"\xff",
        "mb": b"m",
        "lb": b"l",
        "tt": "tt",
        "tx": "tx",
        "mt": "mt",
        "lt": "lt",
        "js": '{"a": 1}',
        "u": bytes.fromhex("123e4567e89b12d3a456426655440000"),
        "i6": bytes(15) + b"\1",
        "vcc": "ab" * 100,
        "blc": "cd" * 200,
    }
    assert update.after is not None
    assert update.after["g"][4:] == bytes.fromhex("0101000000000000000000f03f0000000000000040")
    assert {name: update.after[name] for name in expected} == expected
    assert update.table.key == ("id",)


def test_null_is_not_empty() -> None:
    (update,) = of(4)
    assert update.after == {"id": 2} | dict.fromkeys(
        (c.name for c in update.table.columns if c.name != "id"), None
    )


def test_an_update_has_both_images() -> None:
    (update,) = of(5)
    assert update.op is Op.UPDATE
    assert update.before is not None
    assert update.after is not None
    changed = {name: value for name, value in update.after.items() if value != update.before[name]}
    assert changed == {"t1": 5, "e": "a", "lat": "€", "c": "x"}


def test_rows_of_a_transaction_are_counted_across_tables() -> None:
    assert [(u.position, u.op, u.table.name) for u in of(10)] == [
        (Position(10, 0), Op.INSERT, "kv"),
        (Position(10, 1), Op.INSERT, "everything"),
        (Position(10, 2), Op.INSERT, "kv"),
        (Position(10, 3), Op.DELETE, "kv"),
    ]
    assert {u.transaction for u in of(10)} == {"0-1-10"}
    assert [u.position for u in ALL] == sorted(u.position for u in ALL)


def test_many_rows_in_small_events() -> None:
    rows = [u.after for u in of(8)]
    assert rows == [
        {"k": k, "v": None if k % 3 == 0 else "v" * (k % 20), "d": (Decimal(k) / 4).quantize(Decimal("0.01"))}
        for k in range(1, 41)
    ]
    assert [u.after["v"] for u in of(9) if u.after][:3] == ["vu", "vvu", "vvvvu"]


def test_compressed_events_are_read() -> None:
    assert [u.after for u in of(11)] == [
        {"k": 200 + n, "v": "z" * 50, "d": Decimal(n).quantize(Decimal("0.01"))} for n in range(1, 11)
    ]
    assert {u.after["v"] for u in of(12) if u.after} == {"compressed"}
    assert [u.before["k"] for u in of(13) if u.before] == [206, 207, 208, 209, 210]


def test_rows_have_the_columns_that_their_table_had_then() -> None:
    assert [c.name for c in of(13)[0].table.columns] == ["k", "v", "d"]
    (update,) = of(15)
    assert update.after == {
        "k": 300,
        "w": "after",
        "d": None,
        "extra": dt.datetime(2020, 2, 2, 2, 2, 2, 500000),  # noqa: DTZ001
    }


def test_a_table_that_is_emptied_or_dropped_says_so() -> None:
    assert [(u.op, u.table.path, u.before, u.after) for u in of(16) + of(17)] == [
        (Op.TRUNCATE, "shop.kv", None, None),
        (Op.TRUNCATE, "shop.kv", None, None),
    ]


def test_a_log_without_checksums_reads_the_same() -> None:
    assert list(decode_file(unchecked(sample())).rows()) == ALL


@pytest.mark.parametrize("sequence", range(1, 18))
def test_what_came_before_is_passed_over(sequence: int) -> None:
    decoder = Decoder(0, Position(sequence))
    for event in events_of(sample()):
        decoder.feed(event)
    assert list(decoder.take().rows()) == [u for u in ALL if u.position.sequence >= sequence]


def test_one_event_at_a_time_gives_the_same_as_all_together() -> None:
    decoder = Decoder(0)
    found: list[Update] = []
    upto = []
    for event in events_of(sample()):
        decoder.feed(event)
        if decoder.ready:
            part = decoder.take()
            found += part.rows()
            upto.append(part.upto)
    assert found == ALL
    assert upto == [Position(n, LAST_INDEX) for n in range(1, 18)]


def test_a_large_transaction_comes_in_parts() -> None:
    decoder = Decoder(0)
    found: list[Update] = []
    for event in events_of(sample()):
        decoder.feed(event)
        found += decoder.take(open_too=True).rows()
    assert found == ALL


def without(kind: Kind, sequence: int) -> list[memoryview]:
    """The log without the first event of a kind after a transaction's begin."""
    kept, seen = [], False
    for event in events_of(sample()):
        if event[4] == Kind.GTID:
            seen = int.from_bytes(event[19:27], "little") == sequence
        if seen and event[4] == kind:
            seen = False
            continue
        kept.append(event)
    return kept


def test_a_transaction_without_end_was_rolled_back() -> None:
    decoder = Decoder(0)
    for event in without(Kind.XID, 9):
        decoder.feed(event)
    assert list(decoder.take().rows()) == [u for u in ALL if u.position.sequence != 9]


def test_a_transaction_without_end_that_was_given_in_part_is_said() -> None:
    decoder = Decoder(0)
    with pytest.raises(RemoteError, match="transaction 0-1-9 has no end"):
        for event in without(Kind.XID, 9):
            decoder.feed(event)
            decoder.take(open_too=True)


def test_rows_without_their_table_map_are_refused() -> None:
    decoder = Decoder(0)
    with pytest.raises(MalformedLog, match="before its table map"):
        for event in without(Kind.TABLE_MAP, 3):
            decoder.feed(event)


def test_a_changed_byte_is_noticed() -> None:
    damaged = bytearray(sample())
    damaged[5100] ^= 1
    with pytest.raises(MalformedLog, match="checksum"):
        decode_file(bytes(damaged))


def test_a_log_out_of_order_is_refused() -> None:
    events = list(events_of(sample()))
    decoder = Decoder(0)
    with pytest.raises(RemoteError, match="gtid_strict_mode"):
        for event in [*events, *events]:
            decoder.feed(event)


def test_only_one_database() -> None:
    decoder = Decoder(0, database="other")
    for event in events_of(sample()):
        decoder.feed(event)
    taken = decoder.take()
    assert not taken
    assert taken.upto == Position(17, LAST_INDEX)


def test_another_domain_is_passed_over() -> None:
    decoder = Decoder(7)
    for event in events_of(sample()):
        decoder.feed(event)
    assert not decoder.ready


def test_declarations_are_told() -> None:
    (update,) = of(3)
    told = {column.name: column.declared for column in update.table.columns}
    assert told["b8u"] == "bigint unsigned"
    assert told["vc"] == "varchar(20)"
    assert told["bi"] == "binary(4)"
    assert told["e"] == "enum('a','b','ü')"
    assert told["ts6"] == "timestamp(6)"
    assert told["b12"] == "bit(12)"
    assert update.table.arrow.field("ts6").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
def test_packets_are_cut_however_they_come(chunk: int) -> None:
    payloads = [b"", b"a", b"bc" * 50, b"d" * 5000]
    stream = b"".join(len(p).to_bytes(3, "little") + b"\0" + p for p in payloads)
    packets = Packets()
    found = [bytes(p) for at in range(0, len(stream), chunk) for p in packets.feed(stream[at : at + chunk])]
    assert found == payloads


def test_a_packet_of_16_mib_is_joined() -> None:
    size = 0xFFFFFF
    stream = b"\xff\xff\xff\0" + b"x" * size + (5).to_bytes(3, "little") + b"\1" + b"yyyyy" + b"\1\0\0\0z"
    packets = Packets()
    found = [
        bytes(p) for at in range(0, len(stream), 1 << 20) for p in packets.feed(stream[at : at + (1 << 20)])
    ]
    assert found == [b"x" * size + b"yyyyy", b"z"]
