"""A log in memory: a snapshot that stands for its beginning, and the entries after it."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from qanat.kernel import require
from qanat.protocols.raft.messages import ENTRIES_MAX, Entry

Fold: TypeAlias = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Fewer records that lead to the same state; pure."""


class Log:
    """Indices begin with 1; `base` is the last one that the snapshot stands for."""

    def __init__(self) -> None:
        self.base = 0
        self.base_term = 0
        self.snapshot: tuple[bytes, ...] = ()
        self._entries: list[Entry] = []

    @property
    def last_index(self) -> int:
        return self.base + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    @property
    def snapshot_bytes(self) -> int:
        return sum(map(len, self.snapshot))

    def term_at(self, index: int) -> int | None:
        """None for what is not there, or is in the snapshot."""
        if index == self.base:
            return self.base_term
        return self._entries[index - self.base - 1].term if self.base < index <= self.last_index else None

    def from_(self, first: int, bytes_max: int) -> tuple[Entry, ...]:
        """One entry, and as many more as fit."""
        found: list[Entry] = []
        size = 0
        for entry in self._entries[first - self.base - 1 : first - self.base - 1 + ENTRIES_MAX]:
            size += len(entry.data)
            if found and size > bytes_max:
                break
            found.append(entry)
        return tuple(found)

    def bytes_between(self, after: int, upto: int) -> int:
        return sum(len(entry.data) for entry in self._entries[after - self.base : upto - self.base])

    def records(self, upto: int) -> list[bytes]:
        """All that was proposed up to there, or what says the same."""
        entries = self._entries[: upto - self.base]
        return [*self.snapshot, *(entry.data for entry in entries if entry.data)]

    def first_of_term(self, index: int) -> int:
        """Where the term of that entry begins, as far back as there are entries."""
        term = self.term_at(index)
        while index - 1 > self.base and self.term_at(index - 1) == term:
            index -= 1
        return index

    # Changes; whoever makes them has them on disk

    def put(self, first: int, entries: Sequence[Entry]) -> None:
        """In place of whatever was there from `first` on."""
        require(self.base < first <= self.last_index + 1, f"entry {first} does not follow {self.last_index}")
        del self._entries[first - self.base - 1 :]
        self._entries.extend(entries)

    def begin_at(self, index: int, term: int, snapshot: Sequence[bytes]) -> None:
        """The snapshot stands for all up to there; what follows it stays if it is of the same history."""
        same = self.base <= index and self.term_at(index) == term
        self._entries = self._entries[index - self.base :] if same else []
        self.base, self.base_term, self.snapshot = index, term, tuple(snapshot)
