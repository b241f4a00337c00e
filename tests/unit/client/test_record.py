"""Delivery records: what is written is what is read; nothing is lost to a kill; damage is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.client import record
from qanat.client.errors import EventsLost
from qanat.client.record import Recording, RecordingFailed
from qanat.client.record_format import UNIT, CorruptRecord, Entry, checksums, encode_runs
from qanat.client.record_reader import Recorded, decode_record, read_record
from qanat.events.batch import Batch, Kind
from qanat.events.checksum import crc32c

FIRST = 1000


def batch_of(rows: list[tuple[int, Kind, int]], first: int, span: int) -> Batch:
    """A batch of rows (sequence number, kind, how many it stands for)."""
    if not any(kind for _, kind, _ in rows) and len(rows) == span:
        return Batch.build(7, [b"x"] * span, first=first)
    return Batch.build(
        7,
        [b"" if kind is Kind.TOMBSTONE else b"x" for _, kind, _ in rows],
        first=first,
        span=span,
        seqs=np.array([seq for seq, _, _ in rows], np.uint64),
        kinds=[kind for _, kind, _ in rows] if any(kind for _, kind, _ in rows) else None,
        ranges=[count for _, _, count in rows] if any(count > 1 for _, _, count in rows) else None,
    )


@st.composite
def deliveries(draw: Any) -> list[tuple[Batch, list[tuple[int, int, int]]]]:
    """Batches one after the other, each with what it holds: (kind, first, last) of each row."""
    made, at = [], FIRST
    for _ in range(draw(st.integers(1, 6))):
        first, rows, held = at, [], []
        for _ in range(draw(st.integers(1, 30))):
            at += draw(st.sampled_from([0, 0, 0, 1, 3, 300, 70_000]))
            kind = Kind(draw(st.sampled_from([0, 0, 0, 0, 1, 2])))
            count = draw(st.integers(1, 5)) if kind is Kind.TOMBSTONE else 1
            held.append((int(kind), at, at + count - 1))
            at += count
            rows.append((at - 1, kind, count))
        at += draw(st.sampled_from([0, 2]))
        made.append((batch_of(rows, first, at - first), held))
    return made


def recording(folder: Path, **options: str) -> Recording:
    made = Recording(
        folder,
        options.get("subscriber", "s"),
        "orders",
        options.get("where", ""),
        options.get("start", "1000"),
    )
    made.begin(FIRST, "eu")
    return made


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def rows_of(recorded: Recorded | None) -> list[tuple[int, int, int]]:
    """(kind, first, last), with runs of data and GC events taken apart."""
    assert recorded is not None
    runs, rows = recorded.runs, []
    for kind, first, last in zip(runs.kind.tolist(), runs.first.tolist(), runs.last.tolist(), strict=True):
        if kind == Entry.TOMBSTONE:
            rows.append((kind, first, last))
        elif kind in (Entry.DATA, Entry.GC):
            rows += [(kind, seq, seq) for seq in range(first, last + 1)]
    return rows


@given(deliveries(), st.integers(1, 3))
def test_what_was_handed_over_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[Batch, list[tuple[int, int, int]]]], step: int
) -> None:
    folder = tmp_path_factory.mktemp("record")
    writing = recording(folder, where="b = 1 or a = 1")
    for i in range(0, len(made), step):
        writing.took([batch for batch, _ in made[i : i + step]])
    writing.end()
    recorded = read_record(the_file(folder))
    assert recorded is not None and recorded.torn_bytes == 0
    assert rows_of(recorded) == [row for _, held in made for row in held]
    heading = recorded.heading
    assert (heading.subscriber, heading.region, heading.stream) == ("s", "eu", "orders")
    assert (heading.where, heading.start, heading.first) == ("a = 1 or b = 1", "1000", FIRST)
    table = recorded.runs.arrow()
    assert table["kind"].to_pylist()[-1] == "end"
    assert table["first"].to_pylist()[-1] == made[-1][0].last + 1


def test_a_batch_costs_an_entry_and_a_scattered_row_a_byte(tmp_path: Path) -> None:
    writing = recording(tmp_path)
    heading = the_file(tmp_path).stat().st_size
    writing.took([Batch.build(7, [b"x"] * 10_000, first=1000)])
    assert the_file(tmp_path).stat().st_size == heading + UNIT
    seqs = np.arange(11_000, 31_000, 20).astype(np.uint64)
    writing.took([Batch.build(7, [b"x"] * 1000, first=11_000, span=19_981, seqs=seqs)])
    assert the_file(tmp_path).stat().st_size <= heading + 2 * UNIT + 1024
    writing.close()


def test_every_prefix_of_a_record_is_a_record(tmp_path: Path) -> None:
    writing = recording(tmp_path)
    rows = [(1000, Kind.DATA, 1), (1001, Kind.GC, 1), (1300, Kind.TOMBSTONE, 100)]
    writing.took([batch_of(rows, 1000, 301)])
    seqs = np.arange(1301, 2301, 10).astype(np.uint64)
    writing.took([Batch.build(7, [b"x"] * 100, first=1301, span=1000, seqs=seqs)])
    writing.close()
    data = the_file(tmp_path).read_bytes()
    whole = rows_of(decode_record(data))
    assert len(whole) == 103
    for size in range(len(data)):
        recorded = decode_record(data[:size])
        if recorded is None:
            continue
        got = rows_of(recorded)
        assert got == whole[: len(got)]
        if size % UNIT == 0:
            assert rows_of(decode_record(data[:size] + bytes(2 * UNIT))) == got


def test_damage_in_the_middle_is_said(tmp_path: Path) -> None:
    writing = recording(tmp_path)
    for first in range(1000, 1100):
        writing.took([Batch.build(7, [b"x"], first=first)])
    writing.close()
    data = bytearray(the_file(tmp_path).read_bytes())
    heading = len(data) - 100 * UNIT
    data[heading + 50 * UNIT + 9] ^= 4
    with pytest.raises(CorruptRecord, match=f"damaged at byte {heading + 50 * UNIT}"):
        decode_record(bytes(data))
    data[20] ^= 1
    with pytest.raises(CorruptRecord, match="heading"):
        decode_record(bytes(data))
    with pytest.raises(CorruptRecord, match="no delivery record"):
        decode_record(b"something else altogether")


def test_many_checksums_at_once_are_those_of_each() -> None:
    entries = np.frombuffer(
        encode_runs(np.array([0, 1, 2]), 5, np.array([1, 9, 2**60]), np.array([3, 4, 2**40])),
        np.dtype((np.void, UNIT)),
    )
    assert [crc32c(entry.tobytes()[4:]) for entry in entries] == checksums(entries).tolist()


def test_silence_losses_and_a_peaceful_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "COVERED_EVERY_US", 0)
    writing = recording(tmp_path, where="a = 1")
    writing.silent(1009)
    writing.took([batch_of([(1010, Kind.DATA, 1)], 1010, 10)])
    writing.lost(EventsLost("orders", 1020, 1029))
    writing.end()
    writing.silent(1030)
    writing.end()
    recorded = read_record(the_file(tmp_path))
    assert recorded is not None
    runs = recorded.runs
    names = [Entry(kind).name for kind in runs.kind.tolist()]
    assert list(zip(names, runs.first.tolist(), runs.last.tolist(), strict=True)) == [
        ("COVERED", 1000, 1009),
        ("DATA", 1010, 1010),
        ("COVERED", 1011, 1019),
        ("LOST", 1020, 1029),
        ("END", 1030, 1029),
        ("COVERED", 1030, 1030),
        ("END", 1031, 1030),
    ]


def test_a_long_record_goes_on_in_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "PART_BYTES", 1024)
    writing = recording(tmp_path)
    for first in range(1000, 1100):
        writing.took([Batch.build(7, [b"x"], first=first)])
    writing.close()
    parts = [read_record(path) for path in sorted(tmp_path.iterdir())]
    assert len(parts) > 3
    assert [part.heading.part for part in parts if part is not None] == list(range(len(parts)))
    assert [seq for part in parts for _, seq, _ in rows_of(part)] == list(range(1000, 1100))


def test_what_cannot_be_recorded_is_not_handed_over(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    writing = Recording(blocked / "below", "s", "orders", "", "1")
    with pytest.raises(RecordingFailed, match="cannot be recorded"):
        writing.begin(1, "")


CHILD = """
import sys
from qanat.client.record import Recording
from qanat.events.batch import Batch
writing = Recording(sys.argv[1], "s", "orders", "", "1")
writing.begin(1, "")
for first in range(1, 10**9, 3):
    writing.took([Batch.build(7, [b"x"] * 3, first=first)])
    sys.stdout.write(f"{first + 2}\\n")
    sys.stdout.flush()
"""


def test_after_a_kill_all_that_was_handed_over_is_recorded(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, env=dict(os.environ)
    ) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(500)]
        child.kill()
        lines += child.stdout.readlines()
    handed = max(int(line) for line in lines if line.endswith(b"\n"))
    got = rows_of(read_record(the_file(tmp_path)))
    assert [seq for _, seq, _ in got][:handed] == list(range(1, handed + 1))


def test_runs_are_in_order_though_the_clock_was_set_back_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = []
    for hours in (10, 9, 11):
        monkeypatch.setattr(record, "_now_us", lambda hours=hours: hours * 3_600_000_000)
        writing = recording(tmp_path)
        writing.end()
        (heading,) = (
            found.heading
            for path in tmp_path.iterdir()
            if (found := read_record(path)) is not None and found.heading.began_us not in began
        )
        began.append(heading.began_us)
    assert began == [36_000_000_000, 36_000_000_001, 39_600_000_000]


def test_what_did_not_pass_is_written_down_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = 36_000_000_000
    monkeypatch.setattr(record, "_now_us", lambda: now_us)
    writing = recording(tmp_path, where="a = 1")
    writing.silent(FIRST + 5)
    now_us -= 3_600_000_000
    writing.silent(FIRST + 9)
    found = read_record(the_file(tmp_path))
    assert found is not None
    assert found.runs.last.tolist() == [FIRST + 5, FIRST + 9]
    writing.close()
