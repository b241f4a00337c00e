"""Which number stands for which bytes of which file: the rule, without I/O.

- Files get numbers when they are first seen, from 1 on, those that are seen together in the order of their
  names. A number is never given twice.
- A file keeps its number when it is renamed.
- A file with a successor that was read to its end and has settled is *closed*: its number stands for its
  bytes up to there. What is
  appended later gets a number of its own, so that it is read, though behind files that were there before it.
- A file that was cut shorter is closed at its new length; what is appended then gets a number of its own. A
  file that was replaced
  is another file, and so is one that was cut to less than was read of it: what it has now may have been
  written since.
- The number of a file that is gone stays without a file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from zlib import crc32

import msgspec

from qanat.capture.files.filesystem import Found
from qanat.capture.files.positions import END_OFFSET, GREATEST_NUMBER
from qanat.events.errors import LocalError

MARKS = 15
HEAD_BYTES = 1 << (MARKS - 1)
"""So much of a file's beginning tells it from another one."""

Head = Callable[[Found], bytes]


class Part(msgspec.Struct, frozen=True):
    """The bytes of a file that a number stands for."""

    number: int
    path: str
    identity: str
    start: int = 0
    end: int | None = None
    """None while it may still grow."""
    length: int = 0
    """Of the file, when this was written down, or was closed: half a record may lie behind `end`."""
    marks: tuple[int, ...] = ()
    """Checksums of the first 1, 2, 4, … bytes."""
    cut: bool = False
    """It was longer once; what lay behind `end` is lost."""


class Numbers(msgspec.Struct, frozen=True):
    """All that is remembered: the parts there are, by number, and the next number."""

    parts: tuple[Part, ...] = ()
    next: int = 1
    identity: str = ""
    """By chance, when a register is begun: what no other register has. Numbers of two registers have nothing
    to do with each other."""

    def part(self, number: int) -> Part | None:
        return next((part for part in self.parts if part.number == number), None)

    def following(self, number: int) -> Part | None:
        """The first part that there is from this number on."""
        return next((part for part in self.parts if part.number >= number), None)

    def closed(self, number: int, end: int, length: int) -> "Numbers":
        parts = [
            msgspec.structs.replace(part, end=end, length=length)
            if part.number == number and part.end is None
            else part
            for part in self.parts
        ]
        return Numbers(tuple(parts), self.next, self.identity)

    def without(self, number: int) -> "Numbers":
        """The file of this number turned out to be another one."""
        identity = next((part.identity for part in self.parts if part.number == number), None)
        kept = tuple(part for part in self.parts if part.identity != identity)
        return Numbers(kept, self.next, self.identity)


def marks_of(head: bytes) -> tuple[int, ...]:
    sizes = (1 << power for power in range(MARKS))
    return tuple(crc32(head[:size]) for size in sizes if size <= len(head))


def is_same(part: Part, head: bytes, length: int) -> bool:
    """Whether a file of this length begins as this one did, as far as both go."""
    pairs = zip(part.marks, marks_of(head[:length]), strict=False)
    return all(one == other for one, other in pairs)


def renumber(
    numbers: Numbers,
    found: Sequence[Found],
    head: Head,
    read_upto: Mapping[int, int],
    order: Callable[[Found], tuple[object, ...]] = lambda file: (file.path,),
) -> Numbers:
    """What the numbers stand for, now that these files are there; the same object if nothing is new.

    `read_upto`: how far numbers were read by whoever asks, which tells a file that was cut from one that was
    not.
    """
    by_identity = {file.identity: file for file in found}
    still: list[Part] = []
    others: set[str] = set()  # files that are no longer what they were, in all their parts
    for part in numbers.parts:
        file = by_identity.get(part.identity)
        if file is not None:
            kept = _kept(part, file, head, read_upto.get(part.number, 0))
            if kept is None:
                others.add(part.identity)
            else:
                still.append(kept)
    parts = [part for part in still if part.identity not in others]
    last = {part.identity: part for part in sorted(parts, key=lambda part: part.start)}
    fresh = (_fresh(file, last.get(file.identity)) for file in sorted(found, key=order))
    new = [start for start in fresh if start is not None]
    if parts == list(numbers.parts) and not new:
        return numbers
    number = numbers.next
    for file, start in new:
        if number > GREATEST_NUMBER:
            raise LocalError(
                f"{file.path}: there are no more numbers for files, {GREATEST_NUMBER} were given"
            )
        parts.append(Part(number, file.path, file.identity, start, None, file.length, marks_of(head(file))))
        number += 1
    return Numbers(tuple(parts), number, numbers.identity)


def with_marks(numbers: Numbers, found: Iterable[Found], head: Head) -> Numbers:
    """As much of each file's beginning as there is by now, before it is all written down."""
    by_identity = {file.identity: file for file in found}
    parts = []
    for part in numbers.parts:
        file = by_identity.get(part.identity)
        if file is not None and part.end is None and file.length > part.length:
            marks = part.marks if len(part.marks) == MARKS else marks_of(head(file))
            parts.append(msgspec.structs.replace(part, length=file.length, marks=marks))
        else:
            parts.append(part)
    return Numbers(tuple(parts), numbers.next, numbers.identity)


def _kept(part: Part, file: Found, head: Head, read_upto: int) -> Part | None:
    if file.length >= END_OFFSET:
        raise LocalError(f"{file.path} has {file.length} bytes; files of 1 TiB and more have no positions")
    needed = max(read_upto, part.length if part.end is None else part.end)
    if (file.path != part.path or file.length < needed) and not is_same(part, head(file), file.length):
        return None
    if file.length >= needed:
        return part if file.path == part.path else msgspec.structs.replace(part, path=file.path)
    if file.length <= part.start or file.length < read_upto:
        return None
    return msgspec.structs.replace(part, path=file.path, end=file.length, length=file.length, cut=True)


def _fresh(file: Found, last: Part | None) -> tuple[Found, int] | None:
    """From where on a file has no number yet."""
    if last is None:
        return file, 0
    return (file, last.end) if last.end is not None and file.length > last.length else None
