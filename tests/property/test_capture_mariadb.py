"""The MariaDB decoder on mutated logs, and on values of every kind in any mixture of nulls."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.capture.mariadb.charsets import CHARSET_OF, is_text, text_of
from qanat.capture.mariadb.decode_rows import Layout
from qanat.capture.mariadb.types import INT24, LONG, LONG_BLOB, LONGLONG, TINY, VARCHAR, ColumnType
from qanat.events.errors import RemoteError
from qanat_workshop.samples.mariadb import corpus, decode_file

LOGS = corpus()
FORMAT_BYTES = 256
"""What is before the transactions is not mutated: a wrong format refuses everything after it."""


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    log = bytearray(draw(st.sampled_from(LOGS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(FORMAT_BYTES, len(log) - 1))
        if draw(st.booleans()):
            log[at] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFF)))
        else:
            new = draw(st.binary(min_size=1, max_size=4))
            log[at : at + len(new)] = new[: len(log) - at]
    return bytes(log)


@settings(max_examples=examples(600))
@given(mutated())
def test_a_mutated_log_is_decoded_or_refused(log: bytes) -> None:
    try:
        updates = decode_file(log)
    except RemoteError:
        return
    for run in updates.runs:
        for image in (run.before, run.after):
            if image is not None:
                image.validate(full=True)
                assert image.num_rows == len(run)


@settings(max_examples=examples(100))
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_one_way(junk: bytes) -> None:
    try:
        decode_file(LOGS[0][:FORMAT_BYTES] + junk)
    except RemoteError:
        pass


KINDS = (
    ColumnType(TINY),
    ColumnType(VARCHAR, 80, charset="utf8mb4"),
    ColumnType(INT24, unsigned=True),
    ColumnType(LONG_BLOB, 4),
    ColumnType(VARCHAR, 1000, charset="latin1"),
    ColumnType(LONGLONG, unsigned=True),
    ColumnType(LONG),
)
VALUES = (
    st.integers(-128, 127),
    st.text(max_size=10),
    st.integers(0, 2**24 - 1),
    st.binary(max_size=300),
    st.text("abcäöü€", max_size=10),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**31), 2**31 - 1),
)
ROWS = st.lists(st.tuples(*(st.none() | values for values in VALUES)), min_size=1, max_size=12)


def encoded(kind: ColumnType, value: object) -> bytes:
    match value:
        case int():
            return value.to_bytes(kind.width, "little", signed=value < 0)
        case str():
            raw = value.encode("cp1252" if kind.charset == "latin1" else "utf-8")
            return len(raw).to_bytes(kind.prefix, "little") + raw
        case bytes():
            return len(value).to_bytes(kind.prefix, "little") + value
    raise TypeError(value)


@settings(max_examples=examples(80))
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_rows_of_many_events_are_what_was_encoded(events: list[list[tuple[object, ...]]]) -> None:
    """Twelve events at once are measured by arrays, few of them one by one: both ways are met here."""
    bodies = []
    for rows in events:
        body = b""
        for row in rows:
            nulls = (
                sum(1 << at for at, value in enumerate(row) if value is None) | 0x80
            )  # the bit that is no column's
            body += bytes([nulls]) + b"".join(
                encoded(k, v) for k, v in zip(KINDS, row, strict=True) if v is not None
            )
        bodies.append(body)
    layout = Layout(KINDS)
    images = layout.locate(bodies)
    assert images.counts.tolist() == [len(rows) for rows in events]
    columns = [array.to_pylist() for array in layout.decode(images.data, images.starts)]
    assert list(zip(*columns, strict=True)) == [row for rows in events for row in rows]


@pytest.mark.parametrize("charset", sorted(set(CHARSET_OF.values())))
def test_every_character_set_is_text_or_bytes(charset: str) -> None:
    if is_text(charset) and not charset.startswith(("ucs", "utf16", "utf32")):
        assert text_of(b"abc", charset) == "abc"
