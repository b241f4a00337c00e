"""One version of a stream's manifest: which files make up its archive, which ranges are complete, which were
lost.

A manifest is a line `qanat-archive 1 crc32c=… bytes=…`, then JSON. It is never changed: a commit is a new
version, put under the next number if nobody has (`history`). So whoever has read one has a consistent
picture.
"""

from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from qanat.events.checksum import crc32c
from qanat.pipeline.archive.errors import ArchiveDamaged, NotArchived

Role = Literal["append", "rewrite"]
"""Who commits: one writer adds what is new, one replaces files by better ones (tidying, garbage
collection)."""
FORMAT = 1
ANCHORS_MAX = 16


class Range(NamedTuple):
    """Sequence numbers first..last, both included."""

    first: int
    last: int


class DataFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Parquet file with every number of first..last: as an event, or under a tombstone."""

    path: str
    """Relative to the stream's folder."""
    first: int
    last: int
    rows: int
    bytes: int
    checksum: str
    """Of its bytes, after the name of how it was computed: `crc32c:0badcafe`."""
    min_time_us: int
    max_time_us: int
    generation: int = 0
    """0: as the stream delivered it; else the rewriting that made it."""

    @property
    def day(self) -> str:
        """The folder that it is in."""
        return self.path.partition("/")[0].removeprefix("day=")


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    """An archived event by which the stream is known again: in another stream that number has another mark
    (`wire.streams.Seen`)."""

    seq: int
    mark: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a stream's archive is, as of one version."""

    stream: str
    version: int = 0
    """0: nothing was ever committed."""
    identity: str = ""
    """Which stream of that name: when its first event was published, in µs (`wire.streams.Seen.born_us`);
    empty if that is not known."""
    files: tuple[DataFile, ...] = ()
    """Rising, not overlapping; where one does not follow on from the one before it, a lost range lies
    between."""
    lost: tuple[Range, ...] = ()
    """What the stream had dropped before it was archived, and somebody accepted that."""
    anchors: tuple[Anchor, ...] = ()
    """The last event of each of the newest commits, if it was there to be marked."""
    collected: int = 0
    """Garbage was collected as of this sequence number; the archive before it cannot be read as of an earlier
    one."""
    generation: int = 0
    """How often files were replaced."""
    epochs: dict[str, int] = {}
    """Of each role: how many writers began. Only the last one may commit."""
    claim: int = 0
    """Files up to this sequence number are being rewritten; whoever appends leaves them as they are
    meanwhile. 0: none."""
    action: Literal["none", "begin", "append", "replace"] = "none"
    """What made this version of the one before it."""
    token: str = ""
    """Of the commit; tells a writer whose answer was lost that the version is its own."""
    parent: str = ""
    """The token of the version that this one was made of."""
    committed_us: int = 0

    @property
    def first(self) -> int:
        """The first number that is accounted for; 1 if there is none."""
        starts = [self.files[0].first] if self.files else []
        return min(starts + [r.first for r in self.lost[:1]], default=1)

    @property
    def next(self) -> int:
        """The number after the last that is accounted for, in a file or as lost; 0 if there is none."""
        ends = [self.files[-1].last] if self.files else []
        ends += [self.lost[-1].last] if self.lost else []
        return max(ends) + 1 if ends else 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def complete(self) -> tuple[Range, ...]:
        """The ranges of which the archive has everything, rising; two of them never touch."""
        ranges: list[Range] = []
        for file in self.files:
            if ranges and ranges[-1].last + 1 == file.first:
                ranges[-1] = Range(ranges[-1].first, file.last)
            else:
                ranges.append(Range(file.first, file.last))
        return tuple(ranges)

    def overlapping(self, first: int, last: int) -> tuple[DataFile, ...]:
        """The files with any number of first..last."""
        return tuple(file for file in self.files if file.first <= last and file.last >= first)

    def require(self, first: int, last: int) -> None:
        """Raises `NotArchived` unless every number of first..last is in a file."""
        if any(r.first <= first and last <= r.last for r in self.complete()):
            return
        for gone in self.lost:
            if gone.first <= last and gone.last >= first:
                raise NotArchived(
                    f"the archive of stream {self.stream!r} lacks {gone.first} to {gone.last}: they were lost"
                    " before they were archived; ask for a range without them"
                )
        have = " and ".join(f"{r.first} to {r.last}" for r in self.complete()) or "nothing"
        raise NotArchived(f"the archive of stream {self.stream!r} has {have}, not all of {first} to {last}")

    def check(self) -> "Manifest":
        """Itself, if its files rise, do not overlap, and leave out nothing but what is lost."""
        covered = sorted([Range(file.first, file.last) for file in self.files] + list(self.lost))
        for a, b in pairwise(covered):
            if a.last + 1 != b.first:
                what = "overlap" if b.first <= a.last else "leave a hole"
                raise ArchiveDamaged(
                    f"manifest {self.version} of stream {self.stream!r}: {a.first}..{a.last} and"
                    f" {b.first}..{b.last} {what}"
                )
        if any(r.first > r.last or r.first < 1 for r in covered):
            raise ArchiveDamaged(f"manifest {self.version} of stream {self.stream!r} names a range backwards")
        return self


def encode(manifest: Manifest) -> bytes:
    body = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    return f"qanat-archive {FORMAT} crc32c={crc32c(body):08x} bytes={len(body)}\n".encode() + body


def decode(data: bytes, where: str) -> Manifest:
    """The manifest in a file's bytes; raises `ArchiveDamaged`, which names `where`."""
    head, _, body = data.partition(b"\n")
    words = head.split(b" ")
    if words[:1] != [b"qanat-archive"] or len(words) != 4:
        raise ArchiveDamaged(f"{where} is no manifest of an archive: it starts with {data[:24]!r}")
    if words[1] != b"%d" % FORMAT:
        raise ArchiveDamaged(
            f"{where} has format {words[1].decode()!r}; this version of Qanat knows {FORMAT}"
        )
    if words[2:] != f"crc32c={crc32c(body):08x} bytes={len(body)}".encode().split(b" "):
        raise ArchiveDamaged(
            f"{where} is damaged: its checksum or size does not match; restore it from a copy"
        )
    try:
        return msgspec.json.decode(body, type=Manifest).check()
    except msgspec.DecodeError as error:
        raise ArchiveDamaged(f"{where} cannot be read ({error}); restore it from a copy") from error
