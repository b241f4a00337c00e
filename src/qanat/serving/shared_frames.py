"""What a caravan read, once, for all aboard: its frames are made once, and each filter is asked once."""

from qanat.events.batch import Batch, decode_all
from qanat.events.filters import Filter
from qanat.log.reader import Chunk, Truncated
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.serving.subscriber import Subscriber, all_passing, chunk_frame, covering, events_frame, rows_of
from qanat.wire.frame import Bytes
from qanat.wire.streams import LOST, Lost, encode_control


class Piece:
    """A part of a log between two places, `first` to `last`; `chunk` is None where the log no longer has
    it."""

    __slots__ = ("_batches", "_frames", "_kept_bytes", "_passed", "chunk", "first", "last", "size")

    def __init__(self, found: Chunk | Truncated, first: int) -> None:
        self.chunk = found if isinstance(found, Chunk) else None
        self.first, self.last = first, found.last
        self.size = 0 if self.chunk is None else self.chunk.size
        self._frames: dict[int, list[Bytes]] = {}
        self._batches: list[Batch] | None = None
        self._passed: dict[tuple[Filter, int], tuple[list[memoryview], int]] = {}
        self._kept_bytes = 0

    def send(self, subscriber: Subscriber) -> int:
        """What it needs of this piece; how many bytes that were. Afterwards it is behind the piece."""
        if self.chunk is None:
            lost = Lost(subscriber.number, max(self.first, subscriber.at), self.last)
            subscriber.connection.send(LOST, STREAMS_CHANNEL, encode_control(lost))
            subscriber.at = subscriber.silent_from = self.last + 1
            return 0
        if subscriber.filter is None:
            size = self._send_all(subscriber, self.chunk)
        else:
            size = self._send_passed(subscriber, subscriber.filter, self.chunk)
        subscriber.at = self.last + 1
        return size

    def _send_all(self, subscriber: Subscriber, chunk: Chunk) -> int:
        if subscriber.at > self.first:
            rest = _from(chunk, subscriber.at)
            subscriber.send(chunk_frame(subscriber.number, rest, files=False), rest.size)
            return rest.size
        parts = self._frames.get(subscriber.number)
        if parts is None:
            parts = self._frames[subscriber.number] = chunk_frame(subscriber.number, chunk, files=False)
        subscriber.send(parts, self.size)
        return self.size

    def _send_passed(self, subscriber: Subscriber, where: Filter, chunk: Chunk) -> int:
        if subscriber.at > self.first:
            data, heard = covering(all_passing(rows_of(chunk, subscriber.at), where), subscriber.silent_from)
        else:
            data, heard = self._for_all(where, subscriber.silent_from, chunk)
        size = sum(map(len, data))
        if data:
            subscriber.send(events_frame(subscriber.number, data), size)
            subscriber.silent_from = heard
        return size

    def _for_all(self, where: Filter, silent_from: int, chunk: Chunk) -> tuple[list[memoryview], int]:
        """The same for all with this filter who heard of the stream up to the same place: nearly always all
        of them."""
        found = self._passed.get((where, silent_from))
        if found is None:
            if self._batches is None:
                self._batches = rows_of(chunk, self.first)
            found = covering(all_passing(self._batches, where), silent_from)
            self._kept_bytes += sum(map(len, found[0]))
            if (
                self._kept_bytes <= self.size
            ):  # what is kept is no more than what was read, however many filters there are
                self._passed[where, silent_from] = found
        return found


def _from(chunk: Chunk, start: int) -> Chunk:
    """From the batch on that has `start`."""
    for number, part in enumerate(chunk.data):
        offset = 0
        for batch in decode_all(part, verify=False):
            if batch.last >= start:
                return chunk._replace(data=[part[offset:], *chunk.data[number + 1 :]], first=batch.first)
            offset += batch.size
    return chunk._replace(data=[], first=start)
