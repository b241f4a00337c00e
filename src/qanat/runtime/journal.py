"""A machine's records on disk: small, append-only, checksummed, and kept twice.

Every block of records is written to two files, each in a folder of its own: synced in the first, then written
to the second and synced there; only then is it told to be on disk. So what a crash can leave is known, and
all else is damage:

- the second never has a block that the first lacks, nor anything of one that is not whole in the first;
- the first is at most one block ahead, and only that block may be half-written.

Whatever was told to be on disk is whole in both files, so it takes damage to both to lose it. When a journal
is opened the file that reaches further is believed and the other is made like it; `repaired` says what was
wrong. Only if neither file has what at least one of them once had is the journal refused (see "Protocol-Aware
Recovery for Consensus-Based Storage", FAST 2018: a record that is kept apart tells a damaged record from a
write that never finished).

Where a disk is full, a journal goes on in the room that is set aside for it (`reserve`). When that is used
up, `write` raises `NoRoom`, with nothing lost, and is called again with the same records.

A machine that can say the same in fewer records gives a function that does. It is applied when the journal is
opened, and when it has grown to twice what that left; the result becomes new files, which replace the old
ones by their names.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, assert_never

from qanat.events.durable import make_folder, sync_folder
from qanat.events.errors import LocalError
from qanat.runtime.journal_file import (
    MAGIC,
    Found,
    JournalFile,
    NoRoom,
    State,
    encode,
    read,
)
from qanat.runtime.journal_reached import Reached
from qanat.runtime.reserve import Reserve

Compact: TypeAlias = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Fewer records from which a machine would start in the same state; pure, and called in a thread."""
_GROWTH_BYTES = 1024 * 1024
"""A journal below this is not worth another file."""
TWINS = ".twins"
"""What the folder of the second files is called, after the name of the first one's."""


class JournalFull(LocalError):
    """The journal reached its limit; nothing was written."""


class CorruptJournal(LocalError):
    """Durable records are damaged: the machine cannot be started from them."""


def twin_of(path: Path) -> Path:
    """Where the second file of a journal lies."""
    return path.parent.with_name(path.parent.name + TWINS) / path.name


def is_there(path: Path) -> bool:
    """Whether anything is left of a journal."""
    return path.exists() or twin_of(path).exists()


class Journal:
    """Both files. `write` blocks: call it in a thread, one call at a time."""

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = 1 << 30,
        compact: Compact | None = None,
        growth_bytes: int = _GROWTH_BYTES,
        vouched: bool = False,
    ) -> None:
        """Opens or makes the files and reads them; `records` is what survived. `vouched`: it is written down
        apart how far the journal reached, so that two files that end early alike, or are older copies, are
        refused."""
        self.path = path
        self.records: list[bytes] = []
        self.repaired: list[str] = []
        """What was wrong with one of the files, in sentences."""
        self._number = 0
        self._limit_bytes, self._growth_bytes, self._compact = limit_bytes, growth_bytes, compact
        self._files: list[JournalFile] = []
        self._reached: Reached | None = None
        self._in_files = 0
        """How many of the files have the block that is being written."""
        try:
            if vouched:
                self._reached = Reached(path)
            self._recover(path, twin_of(path))
        except BaseException:
            self.close()
            raise
        self._reserve = Reserve(path)
        self._compact_at = growth_bytes
        if self.size_bytes > self._compact_at:
            self._shorten(self.records)

    @property
    def size_bytes(self) -> int:
        """Of each of the two files."""
        return self._files[0].size_bytes

    @property
    def cramped(self) -> bool:
        """Whether it lives on what was set aside, or has used that up."""
        return not self._reserve.there

    def write(self, records: list[bytes]) -> None:
        """Appends one block and returns when it is on disk. After `NoRoom` only the same records may be
        written; after any other error the files must be opened anew."""
        block = encode(self._number + 1, records)
        if self.size_bytes + len(block) > self._limit_bytes:
            raise JournalFull(
                f"the journal {self.path} would pass {self._limit_bytes} bytes; raise its limit or retire it"
            )
        try:
            self._write(block)
        except NoRoom:
            if not self._reserve.give():
                raise
            self._write(block)
        else:
            self._reserve.make()
        self._number += 1
        self._note()
        if self.size_bytes > self._compact_at:
            try:
                written = read(self.path).records
            except OSError:  # as where no file can be opened now: the block is on disk all the same
                self._compact_at = 2 * self.size_bytes
            else:
                self._shorten(written)

    def _write(self, block: bytes) -> None:
        for file in self._files[self._in_files :]:
            file.write(block)
            self._in_files += 1
        self._in_files = 0

    def close(self) -> None:
        for file in self._files:
            file.close()
        if self._reached is not None:
            self._reached.close()

    def _note(self) -> None:
        if self._reached is not None:
            self._reached.note(self._number)

    def _shorten(self, records: list[bytes]) -> None:
        """Says the same in fewer records, in files that take these ones' names when they are on disk."""
        if self._compact is None:
            return
        fewer = list(self._compact(records))
        data = MAGIC + encode(self._number, fewer)  # what it stands for had this many blocks
        self._compact_at = max(self._growth_bytes, 2 * len(data))
        if len(data) * 2 > self.size_bytes:
            self._compact_at = max(self._compact_at, 2 * self.size_bytes)
            return
        try:
            for file in self._files:
                file.replace(data)
        except OSError:  # no room for another file: the long one is as good
            self._compact_at = 2 * self.size_bytes

    def _recover(self, path: Path, twin: Path) -> None:
        make_folder(path.parent)
        make_folder(twin.parent)
        first, second = read(path), read(twin)
        number = max(first.number, second.number)
        self._refuse_lost(path, first, second, number)
        if self._reached is not None and self._reached.number > number:
            raise CorruptJournal(
                f"{path} and {twin} reach block {number}, and {self._reached.path} says that block"
                f" {self._reached.number} was once on disk: both are older copies, or lost their end"
            )
        best, best_path = (first, path) if first.number == number else (second, twin)
        self._number, self.records = number, best.records
        self.repaired = _complaints(path, first, twin, second)
        for place, found in ((path, first), (twin, second)):
            file = JournalFile(place, found.end)
            self._files.append(file)
            if found.state is State.JOURNAL and found.number == number:
                file.settle()
            else:
                file.replace(best_path.read_bytes()[: best.end] if number else MAGIC)
        for place in (path, twin):
            sync_folder(place.parent)
        self._note()

    @staticmethod
    def _refuse_lost(path: Path, first: Found, second: Found, number: int) -> None:
        """Neither has what one of them is known to have had, on disk."""
        states = (first.state, second.state)
        if not number and State.FOREIGN in states and State.JOURNAL not in states:
            raise CorruptJournal(f"{path} is not a journal; was it written by another program, or version?")
        once = max(first.later, second.later, second.number + 1 if second.trailing else 0)
        if once > number:
            raise CorruptJournal(
                f"{path} is damaged at byte {first.end}, and {twin_of(path)} at byte {second.end}: block"
                f" {number + 1} was once on disk, and is whole in neither; restore one of them from a copy"
            )


def _complaints(path: Path, first: Found, twin: Path, second: Found) -> list[str]:
    """What no crash explains, though nothing is lost by it."""
    said = []
    if second.number and (first.state is not State.JOURNAL or first.number < second.number):
        said.append(_sentence(path, first, twin))
    if first.number and (second.state is not State.JOURNAL or second.number < first.number - 1):
        said.append(_sentence(twin, second, path))
    return said


def _sentence(bad: Path, found: Found, good: Path) -> str:
    match found.state:
        case State.MISSING:
            what = "was gone"
        case State.BLANK:
            what = "was empty"
        case State.FOREIGN:
            what = "was damaged at its beginning"
        case State.JOURNAL if found.trailing:
            what = f"was damaged at byte {found.end}"
        case State.JOURNAL:
            what = f"ended too early, at byte {found.end}"
        case _:
            assert_never(found.state)
    return f"{bad} {what}; it was made again from {good}"
