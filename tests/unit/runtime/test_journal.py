"""Journals: what survives is a prefix of whole blocks, and damage is never handed to a machine."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from qanat.runtime.journal import CorruptJournal, Journal, JournalFull

BLOCKS = [[b"one", b""], [b"two" * 10], [b"three", b"3" * 100, b"x"]]


@pytest.fixture
def no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that open thousands of journals and cut no power: nothing waits for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    monkeypatch.setattr("qanat.runtime.journal.sync_data", lambda _file: None)


def make(path: Path) -> list[int]:
    """Writes the blocks; gives the size of the file after each."""
    journal = Journal(path)
    sizes = [journal.size_bytes]
    for block in BLOCKS:
        journal.write(block)
        sizes.append(journal.size_bytes)
    journal.close()
    return sizes


def read(path: Path) -> list[bytes]:
    journal = Journal(path)
    journal.close()
    return journal.records


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m.journal"
    make(path)
    assert read(path) == [record for block in BLOCKS for record in block]


def test_appends_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    make(path)
    journal = Journal(path)
    journal.write([b"more"])
    journal.close()
    assert read(path)[-1] == b"more"


@pytest.mark.usefixtures("no_power_cut")
def test_every_truncation_keeps_the_whole_blocks(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    sizes = make(path)
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        whole = sum(size <= cut for size in sizes[1:])
        assert read(path) == [record for block in BLOCKS[:whole] for record in block]
        journal = Journal(path)
        journal.write([b"after"])
        journal.close()
        assert read(path)[-1] == b"after"


@pytest.mark.usefixtures("no_power_cut")
def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    sizes = make(path)
    data = path.read_bytes()
    everything = [record for block in BLOCKS for record in block]
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                records = read(path)
            except CorruptJournal:
                continue
            in_last_block = place >= sizes[-2]
            assert records == everything or (in_last_block and records == everything[: len(records)])


def test_another_file(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    path.write_bytes(b"something else entirely")
    with pytest.raises(CorruptJournal, match="not a journal"):
        Journal(path)


def test_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    journal = Journal(path, limit_bytes=100)
    journal.write([b"x" * 50])
    with pytest.raises(JournalFull):
        journal.write([b"y" * 50])
    journal.write([b"z"])
    journal.close()
    assert read(path) == [b"x" * 50, b"z"]


def newest(records: Sequence[bytes]) -> list[bytes]:
    """Each record is `key=value`; only the last of each key still says something."""
    return list({record.split(b"=")[0]: record for record in records}.values())


@pytest.mark.usefixtures("no_power_cut")
def test_a_journal_is_shortened_while_it_grows_and_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    journal = Journal(path, compact=newest, growth_bytes=1000)
    sizes = []
    for number in range(1000):
        journal.write([b"%d=%d" % (number % 3, number)])
        sizes.append(journal.size_bytes)
    journal.close()
    assert max(sizes) < 1100
    assert newest(read(path)) == [b"0=999", b"1=997", b"2=998"]
    for number in range(100):
        journal = Journal(path)
        journal.write([b"4=%d" % number, b"x" * 50])
        journal.close()
    journal = Journal(path, compact=newest, growth_bytes=1000)
    assert journal.records[-1] == b"x" * 50 and path.stat().st_size < 1000
    journal.write([b"5=1"])
    journal.close()
    assert read(path)[-2:] == [b"x" * 50, b"5=1"]


@pytest.mark.usefixtures("no_power_cut")
def test_one_that_cannot_be_shortened_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    asked = []

    def keep(records: Sequence[bytes]) -> Sequence[bytes]:
        asked.append(len(records))
        return records

    journal = Journal(path, compact=keep, growth_bytes=100)
    for number in range(200):
        journal.write([b"%d" % number])
    journal.close()
    assert len(asked) < 10
    assert read(path) == [b"%d" % number for number in range(200)]


def test_what_a_crash_left_of_a_shorter_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.journal"
    make(path)
    (tmp_path / "m.journal.new").write_bytes(b"half")
    assert read(path) == [record for block in BLOCKS for record in block]
    assert not (tmp_path / "m.journal.new").exists()
