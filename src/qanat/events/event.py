"""One event, for whoever wants them one by one; everything between publisher and subscriber moves batches."""

from collections.abc import Iterator
from typing import NamedTuple

from qanat.events.attributes import Value
from qanat.events.batch import Batch, Kind


class Event(NamedTuple):
    """What a subscriber sees. A tombstone stands for the `range` sequence numbers that end at `seq`."""

    seq: int
    kind: Kind
    key: bytes
    time_us: int
    payload: bytes
    attributes: dict[str, Value]
    range: int = 1


def events(batch: Batch) -> Iterator[Event]:
    """The rows of a batch, made into Python objects column by column."""
    count = batch.count
    kinds, keys, ranges = batch.kinds, batch.keys(), batch.ranges
    names = batch.attributes()
    return map(
        Event._make,
        zip(
            batch.seqs().tolist(),
            [Kind.DATA] * count if kinds is None else list(map(Kind, kinds.tolist())),
            [b""] * count if keys is None else keys.to_pylist(),
            batch.times().tolist(),
            batch.payloads().to_pylist(),
            [batch.attribute_row(i) for i in range(count)] if names else [{} for _ in range(count)],
            [1] * count if ranges is None else ranges.tolist(),
            strict=True,
        ),
    )
