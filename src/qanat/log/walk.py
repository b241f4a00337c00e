"""Walking the batches of a segment file, and saying exactly where one is damaged."""

from collections.abc import Iterator

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.checksum import crc32c
from qanat.events.errors import MalformedBatch
from qanat.events.layout import HEADER_BYTES, KINDS, Buffer, Header, peek
from qanat.log.errors import TimeAhead


class Damage(Exception):
    """The batch at `offset` is not what was written; whoever walks decides what that means."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


def check_header(header: Header, stream: int, first: int) -> str | None:
    """Why a batch with a whole header does not belong here, or None."""
    if header.stream != stream:
        return f"a batch of stream {header.stream:#x} in the log of {stream:#x}"
    if header.first != first:
        return f"a batch that starts at {header.first} where {first} should be"
    if not header.span:
        return "a batch that covers nothing"
    return None


def headers(
    data: Buffer, base: int, stream: int, first: int, *, bodies: bool = False
) -> Iterator[tuple[int, Header]]:
    """(file offset, header) of each batch of `data`, which lies at file offset `base`.

    With `bodies` their checksums are verified, too. That is enough for what this log wrote: the shape of a
    batch was checked before it was stored, and bytes that pass both checksums are the bytes that were stored.
    """
    view, at, size = memoryview(data), 0, len(data)
    while at < size:
        try:
            header = peek(view[at : at + HEADER_BYTES])
        except MalformedBatch as error:
            raise Damage(base + at, str(error)) from error
        reason = check_header(header, stream, first)
        if reason is None and at + header.size > size:
            reason = f"a batch of {header.size} bytes, but only {size - at} are left"
        if (
            reason is None
            and bodies
            and crc32c(view[at + HEADER_BYTES : at + header.size]) != header.body_crc
        ):
            reason = "the body's CRC32C does not match"
        if reason is not None:
            raise Damage(base + at, reason)
        yield base + at, header
        at += header.size
        first += header.span


def batches(data: Buffer, base: int, stream: int, first: int) -> Iterator[tuple[int, Batch]]:
    """(file offset, batch), with both checksums verified."""
    view = memoryview(data)
    for offset, header in headers(data, base, stream, first, bodies=True):
        at = offset - base
        yield offset, Batch(view[at : at + header.size], header, 0, header.count)


def events_in(batch: Batch) -> int:
    """Rows that are not tombstones."""
    if not batch.header.flags & KINDS:
        return batch.count
    return int(np.count_nonzero(batch.kinds != Kind.TOMBSTONE))


def times_us(batch: Batch) -> tuple[int, int]:
    """The oldest and the newest publish time in a batch."""
    if not batch.has_times or not batch.count:
        return batch.time_us, batch.time_us
    times = batch.times()
    return int(times.min()), int(times.max())


_EARLIEST_US = -(1 << 62)


def check_times(batch: Batch, latest_us: int) -> None:
    """Refuses what is dated later than that, and what no calendar has."""
    oldest_us, newest_us = times_us(batch)
    if newest_us > latest_us:
        raise TimeAhead(
            f"an event is dated {newest_us} µs, {(newest_us - latest_us) / 1e6:.3g} s later than an event may"
            " be dated here now (ahead_ms): set the publisher's clock right, or the server's"
        )
    if oldest_us < _EARLIEST_US:
        raise TimeAhead(
            f"an event is dated {oldest_us} µs, before all time: times are µs since 1970, from -2^62 on"
        )


def first_since(batch: Batch, time_us: int) -> int | None:
    """The first row of that time or a later one."""
    if not batch.has_times:
        return 0 if batch.count and batch.time_us >= time_us else None
    late = np.flatnonzero(batch.times() >= time_us)
    return int(late[0]) if len(late) else None
