"""Journals: what survives is a prefix of whole blocks, and damage is never handed to a machine."""

from pathlib import Path

import pytest

from qanat.runtime.journal import CorruptJournal, Journal, JournalFull

BLOCKS = [[b"one", b""], [b"two" * 10], [b"three", b"3" * 100, b"x"]]


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
