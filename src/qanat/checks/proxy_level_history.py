"""A history for simulated proxies: it survives crashes up to its last sync, and remembers what was truly
published."""

from qanat.events.batch import Batch
from qanat.log.checker import Event, rows_of
from qanat.protocols.history import Highest, Numbered
from qanat.protocols.history_memory import MemoryHistory


class SimHistory:
    """Implements `History` over two in memory: what readers here see, and what a power cut leaves.

    Own streams are read from what is durable, as the stream log does it: a tombstone must never be shown
    before the GC event that made it is safe. With `instant` there is one history, always durable.
    """

    def __init__(self, own: frozenset[int], *, instant: bool) -> None:
        self.own = own
        self.instant = instant
        self._live = MemoryHistory()
        self._disk = self._live if instant else MemoryHistory()
        self._unsynced: list[Batch] = []
        self.published: dict[int, list[Event]] = {stream: [] for stream in own}
        """The truth about our own streams: each event that has a number for good, for checkers."""

    # The machine's side

    def counter(self, stream: int) -> int:
        return self._live.counter(stream)

    def durable(self, stream: int) -> int:
        return self._disk.counter(stream)

    def append(self, batch: Batch) -> Numbered:
        numbered = self._live.append(batch)
        self._added(self._live.read(batch.stream, numbered.first, 1))
        return numbered

    def append_numbered(self, batch: Batch) -> None:
        before = self._live.counter(batch.stream)
        self._live.append_numbered(batch)
        if self._live.counter(batch.stream) > before:
            self._added([batch])

    def read(self, stream: int, start: int, max_bytes: int, upto: int | None = None) -> list[Batch]:
        history = self._disk if stream in self.own else self._live
        return history.read(stream, start, max_bytes, upto)

    def positions(self, stream: int) -> dict[str, tuple[int, int]]:
        return self._live.positions(stream)

    def adopt_positions(self, stream: int, highest: Highest) -> None:
        self._live.adopt_positions(stream, highest)

    # The simulation's side

    def sync(self) -> set[int]:
        """Makes durable what was appended; the streams that gained by it."""
        batches, self._unsynced = self._unsynced, []
        for batch in batches:
            self._disk.append_numbered(batch)
            self._note(batch)
        return {batch.stream for batch in batches}

    def power_cut(self, streams: list[int], *, forget: bool) -> "SimHistory":
        """What is there afterwards; with `forget` nothing of streams that others own."""
        after = SimHistory(self.own, instant=self.instant)
        for stream in streams:
            if stream in self.own or not forget:
                for batch in self._disk.read(stream, 1, 1 << 62):
                    after._disk.append_numbered(batch)
                    if not self.instant:
                        after._live.append_numbered(batch)
                after.adopt_positions(stream, self._disk.positions(stream))
        after.published = self.published
        return after

    def _added(self, batches: list[Batch]) -> None:
        if self.instant:
            for batch in batches:
                self._note(batch)
        else:
            self._unsynced += batches

    def _note(self, batch: Batch) -> None:
        if batch.stream in self.own:
            self.published[batch.stream] += [row for row in rows_of([batch]) if isinstance(row, Event)]
