"""What a member writes down, and what it is after it has read that again."""

from collections.abc import Sequence
from typing import TypeAlias, assert_never
from zlib import crc32

import msgspec

from qanat.kernel import Context
from qanat.protocols.raft.log import Log
from qanat.protocols.raft.messages import Entry


class Term(msgspec.Struct, frozen=True, tag=True):
    term: int
    vote: str


class Standing(msgspec.Struct, frozen=True, tag=True):
    whole: bool
    lost: bool


class Entries(msgspec.Struct, frozen=True, tag=True):
    first: int
    terms: tuple[int, ...]
    records: tuple[bytes, ...]


class Beginning(msgspec.Struct, frozen=True, tag=True):
    """A snapshot."""

    index: int
    term: int
    records: tuple[bytes, ...]


Record: TypeAlias = Term | Standing | Entries | Beginning
LEAP = 1 << 32
"""How far above what was the log of a new ensemble begins: so whoever kept an older journal takes the new
beginning as it is."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class Kept:
    """All that survives a crash. Each change is made by a record, so that a restart makes the same."""

    def __init__(self) -> None:
        self.term = 0
        self.vote = ""
        self.whole = False
        """Nothing that this member ever said is forgotten. Else it neither votes nor counts."""
        self.lost = False
        """There was a journal, and it is gone."""
        self.log = Log()

    @property
    def nothing(self) -> bool:
        """As if it had never been there."""
        return not (self.term or self.log.last_index or self.lost)

    def load(self, saved: Sequence[bytes]) -> None:
        for record in saved:
            self.apply(_decode(record))

    def apply(self, record: Record) -> None:
        match record:
            case Term():
                self.term, self.vote = record.term, record.vote
            case Standing():
                self.whole, self.lost = record.whole, record.lost
            case Entries():
                self.log.put(record.first, tuple(map(Entry, record.terms, record.records)))
            case Beginning():
                self.log.begin_at(record.index, record.term, record.records)
            case _:
                assert_never(record)

    def write(self, context: Context, record: Record) -> None:
        context.persist(_encode(record))
        self.apply(record)

    def put(self, context: Context, first: int, entries: Sequence[Entry]) -> None:
        self.note(context, first, entries)
        self.log.put(first, entries)

    def note(self, context: Context, first: int, entries: Sequence[Entry]) -> None:
        """Writes entries that are in the log already."""
        context.persist(_encode(_entries(first, entries)))

    def saved(self) -> list[bytes]:
        """Few records from which `load` makes the same."""
        log = self.log
        found: list[Record] = [Term(self.term, self.vote), Standing(self.whole, self.lost)]
        if log.base:
            found.append(Beginning(log.base, log.base_term, log.snapshot))
        first = log.base + 1
        while first <= log.last_index:
            entries = log.from_(first, 1 << 62)
            found.append(_entries(first, entries))
            first += len(entries)
        return [_encode(record) for record in found]


def _entries(first: int, entries: Sequence[Entry]) -> Entries:
    return Entries(first, tuple(each.term for each in entries), tuple(each.data for each in entries))


def compact(saved: Sequence[bytes]) -> list[bytes]:
    """A journal's records as few."""
    kept = Kept()
    kept.load(saved)
    return kept.saved()


def begin_from(kept: Kept, records: Sequence[bytes]) -> list[bytes]:
    """The journal of every member of a new ensemble: those records are its beginning, above all that was
    before. The same wherever it is made from the same; a beginning that follows nothing gets a term above all
    that elections ever reach, and one of its own."""
    new = Kept()
    index, term = kept.log.last_index + LEAP, max(kept.term, kept.log.last_term) + 1
    if not kept.log.last_index:
        term += LEAP + crc32(b"".join(records))
    for record in (Term(term, ""), Standing(True, False), Beginning(index, term, tuple(records))):
        new.apply(record)
    return new.saved()
