"""The part of a log that was being written when it stopped: what is kept, cut off, or refused.

Files are synced in the order in which they began. So if some file has a mark, or is named by the record of
what was synced (see `synced`), every file before it was synced whole, and that file up to its mark. Damage
there was once good data, and is `CorruptLog`: cutting it off would silently lose what was acknowledged.
Damage after it is a write that was never acknowledged as synced and that a power cut tore; it is cut off
together with everything that came later.
"""

from typing import Protocol

from qanat.events.batch import Batch
from qanat.events.layout import Header
from qanat.log.config import LogConfig
from qanat.log.disk import Disk
from qanat.log.errors import CorruptLog
from qanat.log.positions import Highest, Positions
from qanat.log.segment import Segment
from qanat.log.segment_file import HEAD_BYTES, Head, Mark, decode_head, decode_mark, encode_mark, file_name
from qanat.log.synced import Synced
from qanat.log.walk import Damage, batches, events_in, times_us


class Visit(Protocol):
    """Who is shown the batches, in order: garbage collection learns from them what is dead."""

    def wants(self, header: Header) -> bool: ...

    def ingest(self, batch: Batch) -> None: ...


def check_head(data: bytes, path: str, expected: Head) -> None:
    head = decode_head(data)
    if isinstance(head, str):
        raise CorruptLog(path, 0, head)
    if head != expected:
        raise CorruptLog(path, 0, f"its head says {head}, its name and manifest {expected}")


class TailRecovery:
    """Walks the chain of files from the one that the manifest calls active."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        stream: int,
        config: LogConfig,
        positions: Positions,
        known: Synced | None,
        *,
        repair: bool,
        visit: Visit,
    ) -> None:
        self._disk, self._folder, self._stream, self._config = disk, folder, stream, config
        self._positions, self._known, self._repair, self._visit = positions, known, repair, visit
        self.checkpoint: Highest = dict(positions.highest)
        """Highest positions as of the end of the last segment that is not written any more."""
        self.mark_count = 0
        self.lost: list[str] = []

    def run(self, chain: list[tuple[int, int]]) -> list[Segment]:
        """The segments that hold the recovered prefix; never empty. Files after them are removed."""
        paths = [f"{self._folder}/{file_name(*names)}" for names in chain]
        heads = [self._head_bytes(path) for path in paths]
        marks = [decode_mark(head) for head in heads]
        synced = max((i for i, mark in enumerate(marks) if mark is not None), default=0)
        known = self._known
        synced = max(synced, self._known_at(chain))
        written: list[Segment] = []
        expected = chain[0][0]
        for i, (first, generation) in enumerate(chain):
            mark = marks[i]
            floor = -1 if i > synced else HEAD_BYTES if mark is None else mark.bytes
            if known is not None and (first, generation) == (known.first, known.generation):
                floor = max(floor, known.bytes)
            try:
                if first != expected:
                    raise CorruptLog(paths[i], 0, f"it starts at {first} where {expected} should be")
                check_head(heads[i], paths[i], Head(self._stream, first, generation))
                size = self._disk.size(paths[i])
            except CorruptLog as error:
                if i == 0 or (i <= synced and not self._repair):
                    raise
                self.lost.append(str(error))
                break
            if written:
                self.checkpoint = dict(self._positions.highest)
            segment, damage = self._replay(paths[i], first, generation, size)
            written.append(segment)
            self.mark_count = 0 if mark is None else mark.serial
            expected = segment.last + 1
            if damage is None and segment.bytes < floor:
                damage = Damage(segment.bytes, f"{floor} bytes had been synced, but the file ends here")
            if damage is not None:
                if (i < synced or damage.offset < floor) and not self._repair:
                    raise CorruptLog(paths[i], damage.offset, damage.reason)
                self._cut(paths[i], segment, damage, size)
                break
            if mark is None or mark.bytes < segment.bytes:
                self._settle(paths[i], segment)
        self._discard(paths[len(written) :])
        return written

    def _known_at(self, chain: list[tuple[int, int]]) -> int:
        """Where in the chain the file is up to which all was synced, as the record says; -1 if it is not
        being written any more."""
        known = self._known
        if known is None or known.first < chain[0][0]:
            return -1
        file = (known.first, known.generation)
        if file in chain:
            return chain.index(file)
        gone = CorruptLog(
            f"{self._folder}/{file_name(*file)}",
            0,
            f"the file is missing, though events up to {known.last} were synced",
        )
        if not self._repair:
            raise gone
        self.lost.append(str(gone))
        return len(chain) - 1

    def _head_bytes(self, path: str) -> bytes:
        try:
            return self._disk.read_copy(path, 0, HEAD_BYTES)
        except FileNotFoundError:
            raise CorruptLog(path, 0, "the file is missing, but the manifest names it") from None

    def _replay(self, path: str, first: int, generation: int, size: int) -> tuple[Segment, Damage | None]:
        segment = Segment(first, generation, self._config.index_stride_bytes)
        data = self._disk.read_copy(path, HEAD_BYTES, size - HEAD_BYTES)
        try:
            for _, batch in batches(data, HEAD_BYTES, self._stream, first):
                segment.add(batch.size, batch.last, events_in(batch), times_us(batch), verified=True)
                self._positions.learn(self._positions.observe(batch, limited=False))
                self._visit.ingest(batch)
        except Damage as damage:
            return segment, damage
        return segment, None

    def _cut(self, path: str, segment: Segment, damage: Damage, size: int) -> None:
        """Truncates, durably: left in place, old bytes could one day line up behind new ones."""
        self.lost.append(f"{path}: {size - segment.bytes} bytes cut off at {segment.bytes}: {damage.reason}")
        self._settle(path, segment)

    def _settle(self, path: str, segment: Segment) -> None:
        """Makes what was recovered durable: after `kill -9` it may be in the page cache alone."""
        file = self._disk.open(path)
        try:
            file.truncate(segment.bytes)
            file.sync()
            self.mark_count += 1
            file.write_at(*encode_mark(Mark(self.mark_count, segment.bytes, segment.last)))
            file.sync()
        finally:
            file.close()

    def _discard(self, paths: list[str]) -> None:
        for path in paths:
            self._disk.remove(path)
        if paths:
            self._disk.sync_folder(self._folder)
