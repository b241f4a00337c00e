"""Blocks of a log file: parts, torn tails, damage, leftovers of recycled files."""

from __future__ import annotations

import random

import pytest
import zstandard
from tests.servers.rocksdb import BLOCK, log_file

from qanat.capture.rocksdb.decode_records import Scan, State, scan

SIZES = [0, 1, 12, 100, BLOCK - 8, BLOCK - 7, BLOCK - 6, BLOCK - 11, 3 * BLOCK, 5, BLOCK - 24, 0, 70_000, 9]


def records(*sizes: int) -> list[bytes]:
    seeded = random.Random(7)
    return [seeded.randbytes(size) for size in sizes]


def payloads(found: Scan) -> list[bytes]:
    return [
        found.data[start:end] for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True)
    ]


@pytest.mark.parametrize("number", [None, 9])
def test_records_come_back_whatever_their_size(number: int | None) -> None:
    for first in range(40):  # so that every kind of block end comes up
        written = records(BLOCK - 60 + first, *SIZES)
        data = log_file(written, number=number)
        found = scan(data, State(), 9)
        assert payloads(found) == written
        assert (found.upto, found.torn, found.problem) == (len(data), False, "")


@pytest.mark.parametrize("number", [None, 9])
def test_a_scan_goes_on_where_any_record_ended(number: int | None) -> None:
    written = records(*SIZES)
    data = log_file(written, number=number)
    whole = scan(data, State(), 9)
    for row, offset in enumerate(whole.nexts.tolist()):
        rest = scan(data[offset:], State(offset, whole.recyclable), 9)
        assert payloads(rest) == written[row + 1 :]


def test_a_torn_tail_is_no_record_and_no_damage_wherever_it_is_torn() -> None:
    written = records(BLOCK - 100, *[1400] * 20, 3000, 7, 0, 250)
    data = log_file(written)
    nexts = scan(data, State(), 3).nexts.tolist()
    for cut in range(BLOCK - 100, len(data) + 1):
        found = scan(data[nexts[0] : cut], State(nexts[0]), 3)
        had = sum(offset <= cut for offset in nexts[1:])
        assert len(found.starts) == had and not found.problem
        assert found.upto >= nexts[had]
        if cut % 97 == 0:
            rest = scan(data[nexts[had] :], State(nexts[had]), 3)
            assert payloads(found) + payloads(rest) == written[1:]


def test_zeros_of_a_file_that_is_not_written_yet_are_waited_for() -> None:
    written = records(50, 60)
    found = scan(log_file(written) + bytes(500), State(), 3)
    assert payloads(found) == written and found.torn and not found.problem


def test_damage_is_told_from_a_torn_tail_by_what_follows() -> None:
    data = bytearray(log_file(records(50, 60, 70)))
    data[57 + 20] ^= 1
    found = scan(bytes(data), State(), 3)
    assert len(found.starts) == 1 and found.upto == 57 and "checksum" in found.problem
    assert not scan(bytes(data[: 57 + 67]), State(), 3).problem


@pytest.mark.parametrize("overwritten", [1, 2, 30, 40])
def test_a_recycled_file_ends_where_the_earlier_log_begins(overwritten: int) -> None:
    old = log_file(records(*[900] * 80), number=4)
    new = records(*[1001] * overwritten)
    found = scan(log_file(new, number=8, over=old), State(), 8)
    assert payloads(found) == new
    assert found.torn and not found.problem and found.recyclable
    assert not len(scan(old, State(), 8).starts)


def test_a_leftover_that_happens_to_begin_with_a_whole_record_is_not_taken() -> None:
    old = log_file(records(100, 100, 100), number=4)
    found = scan(log_file(records(100), number=8, over=old), State(), 8)
    assert len(found.starts) == 1


def test_parts_out_of_order_and_unknown_kinds_are_problems() -> None:
    data = log_file(records(40_000, 10))
    second = data[BLOCK:]
    found = scan(second, State(), 3)
    assert not len(found.starts) and "out of order" in found.problem
    kind = bytearray(log_file([b"abc"]))
    kind[6] = 77
    assert scan(bytes(kind), State(), 3).torn


def test_a_compressed_log_says_so() -> None:
    frames = [zstandard.compress(record) for record in records(500, 40_000)]
    found = scan(log_file(frames, compressed=True), State(), 3)
    assert found.compressed and payloads(found) == frames


def test_records_of_one_length_end_where_another_length_begins() -> None:
    for before, after in ((1, 1), (2, 5), (40, 3), (400, 400)):
        written = records(*[100] * before, *[356] * after, *[100] * before, 0, 0, 0, 0)
        data = log_file(written)
        assert payloads(scan(data, State(), 3)) == written
        for cut in range(len(data) - 60, len(data)):
            found = scan(data[:cut], State(), 3)
            assert payloads(found) == written[: len(found.starts)] and len(found.starts) >= len(written) - 5
