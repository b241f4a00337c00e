"""Journals: what survives is a prefix of whole blocks, what was on disk is never given up, and damage is
never handed to a machine."""

import errno
import itertools
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from qanat.events import durable
from qanat.events.durable import leftover
from qanat.runtime import journal_file
from qanat.runtime.journal import CorruptJournal, Journal, JournalFull, twin_of
from qanat.runtime.journal_file import Unsure
from qanat.runtime.journal_reached import reached_of

BLOCKS = [[b"one", b""], [b"two" * 10], [b"three", b"3" * 100, b"x"]]


@pytest.fixture
def no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that open thousands of journals and cut no power: nothing waits for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    for module in (journal_file, durable):
        monkeypatch.setattr(module, "sync_data", lambda _file: None)


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
    path = tmp_path / "deep" / "journals" / "m.journal"
    make(path)
    assert read(path) == [record for block in BLOCKS for record in block]


def test_appends_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "journals" / "m.journal"
    make(path)
    journal = Journal(path)
    journal.write([b"more"])
    journal.close()
    assert read(path)[-1] == b"more"


EVERYTHING = [record for block in BLOCKS for record in block]


def both(path: Path) -> tuple[Path, Path]:
    return path, twin_of(path)


@pytest.mark.usefixtures("no_power_cut")
def test_a_write_that_a_crash_cut_short_at_any_byte_is_given_up_and_nothing_else(tmp_path: Path) -> None:
    """The first file is written and synced before the second is begun, so a crash leaves one of these."""
    path = tmp_path / "journals" / "m.journal"
    sizes = make(path)
    data, twin = path.read_bytes(), twin_of(path)
    for block, (begin, end) in enumerate(itertools.pairwise(sizes)):
        for cut in range(begin, end):
            for first, second in ((cut, begin), (end, cut)):
                path.write_bytes(data[:first])
                twin.write_bytes(data[:second])
                whole = block + (first == end)
                journal = Journal(path)
                assert journal.records == [record for block in BLOCKS[:whole] for record in block]
                assert journal.repaired == []
                journal.write([b"after"])
                journal.close()
                assert read(path)[-1] == b"after" and path.read_bytes() == twin.read_bytes()


@pytest.mark.usefixtures("no_power_cut")
def test_a_crash_while_it_is_made_leaves_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "journals" / "m.journal"
    Journal(path).close()
    magic = path.read_bytes()
    for first in (*range(len(magic) + 1), None):
        for second in (*range(len(magic) + 1), None):
            for file, size in zip(both(path), (first, second), strict=True):
                file.unlink(missing_ok=True)
                if size is not None:
                    file.write_bytes(magic[:size])
            journal = Journal(path)
            assert (journal.records, journal.repaired) == ([], [])
            journal.close()


@pytest.mark.usefixtures("no_power_cut")
@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_a_flip_in_an_empty_one_costs_nothing(tmp_path: Path, which: int) -> None:
    path = tmp_path / "journals" / "m.journal"
    Journal(path).close()
    magic = path.read_bytes()
    for at in range(len(magic) * 8):
        flipped = bytearray(magic)
        flipped[at // 8] ^= 1 << at % 8
        both(path)[which].write_bytes(flipped)
        journal = Journal(path)
        journal.close()
        assert (journal.records, [each.read_bytes() for each in both(path)]) == ([], [magic, magic])


@pytest.mark.usefixtures("no_power_cut")
@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_any_damage_to_one_of_the_files_is_made_good_and_told(tmp_path: Path, which: int) -> None:
    """Flipped, cut at any byte, removed, or replaced by any older copy."""
    path = tmp_path / "journals" / "m.journal"
    sizes = make(path)
    bad = both(path)[which]
    data = bad.read_bytes()
    flipped = [bytes((*data[:at], data[at] ^ 1 << at % 8, *data[at + 1 :])) for at in range(len(data))]
    cut = [data[:size] for size in range(len(data))]
    for damaged in (*flipped, *cut, None):
        if damaged is None:
            bad.unlink()
        else:
            bad.write_bytes(damaged)
        journal = Journal(path)
        journal.close()
        assert journal.records == EVERYTHING
        assert path.read_bytes() == twin_of(path).read_bytes() == data
        # The second may lack the last block after a crash; whatever else it lacks is damage, and so is all
        # that the first lacks.
        last = damaged is not None and damaged[: sizes[-2]] == data[: sizes[-2]]
        assert journal.repaired or (last and which == 1)
        assert all(str(bad) in sentence for sentence in journal.repaired)


@pytest.mark.usefixtures("no_power_cut")
def test_damage_to_both_files_is_refused_or_costs_nothing(tmp_path: Path) -> None:
    """One flipped bit in each: nothing that was on disk is given up, for both are damaged where no crash
    could have."""
    path = tmp_path / "journals" / "m.journal"
    make(path)
    data = path.read_bytes()
    refused = 0
    for one in range(0, len(data), 5):
        for other in range(0, len(data), 7):
            for file, place in zip(both(path), (one, other), strict=True):
                damaged = bytearray(data)
                damaged[place] ^= 4
                file.write_bytes(damaged)
            try:
                records = read(path)
            except CorruptJournal as error:
                refused += 1
                assert str(path) in str(error)
            else:
                assert records == EVERYTHING
    assert refused


def test_both_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "journals" / "m.journal"
    Journal(path).close()
    for file in both(path):
        file.write_bytes(b"something else entirely")
    with pytest.raises(CorruptJournal, match="not a journal"):
        Journal(path)


def test_what_a_killed_process_did_not_sync_is_synced_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journals" / "m.journal"
    make(path)
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.fstat(handle).st_ino))
    Journal(path).close()
    assert {each.stat().st_ino for file in both(path) for each in (file, file.parent)} <= synced


def test_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "journals" / "m.journal"
    journal = Journal(path, limit_bytes=110)
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
    path = tmp_path / "journals" / "m.journal"
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
    path = tmp_path / "journals" / "m.journal"
    asked = []

    def keep(records: Sequence[bytes]) -> Sequence[bytes]:
        asked.append(len(records))
        return records

    journal = Journal(path, compact=keep, growth_bytes=100)
    for number in range(200):
        journal.write([b"%d" % number])
    journal.close()
    assert len(asked) < 15
    assert read(path) == [b"%d" % number for number in range(200)]


def test_what_a_crash_left_of_a_shorter_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "journals" / "m.journal"
    make(path)
    half = leftover(path)
    half.write_bytes(b"half")
    assert read(path) == [record for block in BLOCKS for record in block]
    assert not half.exists()


@pytest.mark.usefixtures("no_power_cut")
def test_one_whose_shorter_file_may_be_forgotten_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What were written to it then would be in a file that has no name after a power cut."""
    path = tmp_path / "journals" / "m.journal"
    journal = Journal(path, compact=newest, growth_bytes=1000)

    def broken(_folder: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(journal_file, "sync_names", broken)
    with pytest.raises(Unsure, match=r"Input/output error: .*journals"):
        for number in range(1000):
            journal.write([b"%d=%d" % (number % 3, number)])
    journal.close()


def test_without_descriptors_a_journal_stays_long_and_goes_on(tmp_path: Path) -> None:
    """Also with one for the shorter file and none for its folder, without which nobody could make that file's
    name survive a power cut."""
    path = tmp_path / "journals" / "m.journal"
    for more in (0, 1, 2):
        journal = Journal(path, compact=newest, growth_bytes=1000)
        _, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.open(path, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, hard))
        try:
            for number in range(200):
                journal.write([b"%d=%d" % (number % 3, number)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        journal.close()
        assert read(path)[-1] == b"1=199"


@pytest.mark.parametrize("harm", ["cut", "removed", "older copy"])
def test_both_files_that_are_less_than_they_were_are_refused_by_what_stands_apart(
    tmp_path: Path, harm: str
) -> None:
    """Each looks like a journal that never had more."""
    path = tmp_path / "journals" / "m.journal"
    sizes = make(path)
    journal = Journal(path, vouched=True)
    copies = {each: each.read_bytes() for each in (path, twin_of(path))}
    journal.write([b"last"])
    journal.close()
    for each in (path, twin_of(path)):
        if harm == "cut":
            each.write_bytes(each.read_bytes()[: sizes[1]])
        elif harm == "removed":
            each.unlink()
        else:
            each.write_bytes(copies[each])
    with pytest.raises(CorruptJournal, match="says that block 4 was once on disk: both are older copies"):
        Journal(path, vouched=True)
    read(path)  # who does not ask is told nothing


def test_what_stands_apart_is_never_too_much_and_made_again_when_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "journals" / "m.journal"
    make(path)
    Journal(path, vouched=True).close()
    place = reached_of(path)
    whole = place.read_bytes()
    for found in (b"", whole[:9], bytes(16), bytes([whole[0] ^ 1]) + whole[1:]):
        place.write_bytes(found)
        Journal(path, vouched=True).close()
        assert place.read_bytes() == whole
    place.unlink()
    journal = Journal(path, vouched=True, compact=lambda records: records[-1:], growth_bytes=10)
    journal.write([b"x" * 100])
    journal.close()
    assert Journal(path, vouched=True).records[-1] == b"x" * 100
    assert place.read_bytes() != whole
