"""pgoutput: whatever the bytes are, updates or one typed error; whatever the values are, they come back."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.capture.errors import MalformedLog
from qanat_workshop.fuzz import mutated
from qanat_workshop.samples.postgres import corpus, decode_file, file_of

CORPUS = corpus()
COLUMNS = (("i", 20, -1), ("s", 25, -1), ("n", 1700, (12 << 16 | 3) + 4), ("b", 17, -1), ("o", 16, -1))


@settings(max_examples=examples(400))
@given(st.integers(0, 2**32), st.integers(1, 2**20))
def test_mutated_streams_are_decoded_or_refused(seed: int, number: int) -> None:
    try:
        decode_file(mutated(CORPUS, seed, number))
    except MalformedLog:
        pass


ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
        st.none() | st.decimals(-(10**8), 10**8, places=3),
        st.none() | st.binary(max_size=20),
        st.none() | st.booleans(),
    ),
    max_size=30,
)


def text(value: Any) -> bytes | None:
    match value:
        case None:
            return None
        case bool():
            return b"t" if value else b"f"
        case bytes():
            return b"\\x" + value.hex().encode()
        case _:
            return str(value).encode()


def image(row: tuple[Any, ...]) -> bytes:
    parts = [
        b"n" if (raw := text(value)) is None else b"t" + struct.pack(">I", len(raw)) + raw for value in row
    ]
    return struct.pack(">h", len(row)) + b"".join(parts)


def described(number: int) -> bytes:
    columns = b"".join(
        b"\1" + name.encode() + struct.pack(">xIi", kind, modifier) for name, kind, modifier in COLUMNS
    )
    return (
        b"R" + struct.pack(">I", number) + b"s\0t%d\0f" % number + struct.pack(">h", len(COLUMNS)) + columns
    )


@pytest.mark.paper("W2")
@given(st.lists(st.tuples(ROWS, st.sampled_from("IUD"), st.integers(1, 2)), max_size=4))
def test_values_come_back_in_their_order(transactions: list[tuple[list[tuple[Any, ...]], str, int]]) -> None:
    messages, expected = [described(1), described(2)], []
    for lsn, (rows, kind, table) in enumerate(transactions, 1):
        messages.append(b"B" + struct.pack(">QqI", lsn * 10, 0, lsn))
        for index, row in enumerate(rows):
            head = kind.encode() + struct.pack(">I", table)
            images = {
                "I": b"N" + image(row),
                "U": b"O" + image(row) + b"N" + image(row),
                "D": b"O" + image(row),
            }
            messages.append(head + images[kind])
            named = {name: value for (name, _, _), value in zip(COLUMNS, row, strict=True)}
            expected.append(
                (lsn * 10, index, f"t{table}", None if kind == "I" else named, None if kind == "D" else named)
            )
        messages.append(b"C\0" + struct.pack(">QQq", lsn * 10, lsn * 10 + 5, 0))
    found = [
        (update.position.sequence, update.position.index, update.table.name, update.before, update.after)
        for update in decode_file(file_of(messages)).rows()
    ]
    assert found == expected
    assert all(
        isinstance(value, Decimal)
        for *_, after in found
        if after
        for value in [after["n"]]
        if value is not None
    )
