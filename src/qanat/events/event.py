"""One event, for whoever wants them one by one; everything between publisher and subscriber moves batches."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

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
            _rows(names, count),
            [1] * count if ranges is None else ranges.tolist(),
            strict=True,
        ),
    )


def _rows(names: Mapping[str, list[pa.Array]], count: int) -> list[dict[str, Value]]:
    """A dict per row. A text that many rows have is one object in all of them."""
    rows: list[dict[str, Value]] = [{} for _ in range(count)]
    for name, arrays in names.items():
        for array in arrays:
            for row, value in zip(rows, _values(array), strict=True):
                if value is not None:
                    row[name] = value
    return rows


def _values(array: pa.Array) -> list[Value]:
    if not pa.types.is_dictionary(array.type):
        return list(array.to_pylist())
    texts = array.dictionary.to_pylist()
    return [None if code is None else texts[code] for code in array.indices.to_pylist()]
