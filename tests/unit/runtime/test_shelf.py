"""A shelf: what lies on it stays as it is until all who were told of it have taken it, within its limit, and
goes with its process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from qanat.runtime.places import Reading
from qanat.runtime.shelf import Reader, Shelf

LIMIT = 100_000
PEERS = st.integers(0, 2)
OTHER = """
from qanat.runtime.shelf import Reader, Shelf
shelf = Shelf(1 << 20)
told = shelf.told()
Reader(shelf).lay(memoryview(b"x" * 70_000))
print(told.path, told.inode, flush=True)
input()
"""


class Shelves(RuleBasedStateMachine):
    """Three peers are told of things at random, and take them in their own time, or leave."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf(LIMIT)
        told = self.shelf.told()
        assert told is not None
        self.fd = os.open(told.path, os.O_RDONLY)
        self.readers = [Reader(self.shelf) for _ in range(3)]
        self.told: list[list[tuple[int, bytes]]] = [[], [], []]
        """What each was told and has not taken: where it is, and what."""
        self.taken = [0, 0, 0]
        self.number = 0

    def teardown(self) -> None:
        os.close(self.fd)
        self.shelf.close()

    @rule(size=st.integers(1, 40_000), peers=st.sets(PEERS, min_size=1))
    def lay(self, size: int, peers: set[int]) -> None:
        self.number += 1
        data = memoryview(bytes([self.number % 251]) * size)
        places = [(peer, self.readers[peer].lay(data)) for peer in sorted(peers)]
        assert len({place for _, place in places}) == 1, "once for all of them"
        for peer, place in places:
            if place is not None:
                self.told[peer].append((place, bytes(data)))
            else:
                assert len(self.lies()) > 1 or size > LIMIT

    @precondition(lambda self: any(self.told))
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from([peer for peer in range(3) if self.told[peer]]))
        count = data.draw(st.integers(1, len(self.told[peer])))
        del self.told[peer][:count]
        self.taken[peer] += count
        assert self.readers[peer].taken(self.taken[peer])

    @rule(peer=PEERS)
    def leave(self, peer: int) -> None:
        self.readers[peer].gone()
        self.readers[peer], self.told[peer], self.taken[peer] = Reader(self.shelf), [], 0

    @rule(peer=PEERS, beyond=st.integers(1, 3))
    def take_what_was_not_told(self, peer: int, beyond: int) -> None:
        assert not self.readers[peer].taken(self.taken[peer] + len(self.told[peer]) + beyond)

    def lies(self) -> set[tuple[int, bytes]]:
        return {found for told in self.told for found in told}

    @invariant()
    def all_is_where_it_was_laid_down(self) -> None:
        for place, data in self.lies():
            assert place + len(data) <= LIMIT
            assert os.pread(self.fd, len(data), place) == data
        assert len(self.shelf._laid) == len(self.shelf._known) == len({place for place, _ in self.lies()})


TestShelves = Shelves.TestCase
TestShelves.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)


def test_one_who_takes_nothing_leaves_room_for_the_others() -> None:
    shelf = Shelf(LIMIT)
    assert shelf.told() is not None
    slow, quick = Reader(shelf), Reader(shelf)
    assert slow.lay(memoryview(bytes(30_000))) == 0
    for number in range(1, 50):
        assert quick.lay(memoryview(bytes([number]) * 30_000)) is not None
        assert quick.taken(number)
    assert slow.taken(1)
    shelf.close()


def test_its_memory_is_given_back_when_nobody_reads_it() -> None:
    shelf = Shelf(LIMIT)
    told = shelf.told()
    assert told is not None
    first, second = Reader(shelf), Reader(shelf)
    first.lay(memoryview(bytes(50_000)))
    second.gone()
    assert os.stat(told.path).st_size == 50_000
    first.gone()
    assert os.stat(told.path).st_size == 0
    shelf.close()


def test_without_memory_nothing_is_laid_down(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(LIMIT)
    assert shelf.told() is not None
    reader = Reader(shelf)

    def full(*_: object) -> int:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        assert reader.lay(memoryview(bytes(1000))) is None
    assert reader.lay(memoryview(bytes(1000))) == 0
    shelf.close()


def test_where_there_are_no_such_files_there_is_no_shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert Shelf(LIMIT).told() is None


def test_another_process_reads_it_and_nothing_is_left_of_it() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    path, inode = child.stdout.readline().split()
    fd = os.open(path, os.O_RDONLY)
    assert os.fstat(fd).st_ino == int(inode)
    child.kill()
    child.communicate()
    assert Reading(1 << 20).read(fd, 0, 70_000) == b"x" * 70_000, "who has it open reads to the end"
    with pytest.raises(OSError, match="ends at 70000"):
        Reading(1 << 20).read(fd, 0, 70_001)
    os.close(fd)
    with pytest.raises(FileNotFoundError):
        os.stat(path)
