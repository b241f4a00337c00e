"""Where in a segment a key, or a value of an indexed attribute, occurs: for each, the index entries that hold
it.

The index says where to look, to the 64 KiB; what is found there is compared in full by the filter itself. So
it may be built on hashes: one that collides costs a look, never a wrong answer. It takes 12 bytes for each
distinct value in each entry. It is kept in memory alone, and made once for a segment: when a predicate first
asks for it, or when one that had it is rewritten.
"""

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np
import pyarrow as pa

from qanat.events.batch import Batch
from qanat.events.encode import Array
from qanat.events.filters import Context, Filter
from qanat.events.filters.model import Among, Conjunction, Literal, Number, SameKey, Text
from qanat.events.filters.numerals import read


class ValueIndex:
    """Hashes of one segment's values, sorted, each with its entry."""

    def __init__(self, hashes: list[Array], entries: list[int]) -> None:
        counts = [len(part) for part in hashes]
        joined = np.concatenate([np.zeros(0, np.int64), *hashes])
        order = np.argsort(joined, kind="stable")
        self._hashes = joined[order]
        self._entries = np.repeat(np.array(entries, np.int32), counts)[order]

    def __len__(self) -> int:
        return len(self._hashes)

    def entries(self, wanted: Array) -> Array:
        """Sorted entries in which any of these hashes occurs."""
        begin = np.searchsorted(self._hashes, wanted, "left")
        end = np.searchsorted(self._hashes, wanted, "right")
        spans = [self._entries[b:e] for b, e in zip(begin.tolist(), end.tolist(), strict=True) if b < e]
        return np.unique(np.concatenate(spans)) if spans else np.zeros(0, np.int32)


def hashes_of(batch: Batch, indexed: Iterable[str]) -> Array:
    """Hashes of the distinct keys and indexed values of a batch."""
    parts = []
    keys = batch.keys()
    if keys is not None:
        names = keys.unique().to_numpy(zero_copy_only=False).tolist()
        parts.append(np.fromiter(map(hash, names), np.int64, len(names)))
    columns = batch.attributes() if batch.header.attribute_bytes else {}
    for name in indexed:
        for array in columns.get(name, []):
            values = list(_forms(array))
            parts.append(np.fromiter(map(hash, zip(repeat(name), values)), np.int64, len(values)))
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _forms(array: pa.Array) -> Iterator[object]:
    """What a column's distinct values may be asked for as: numbers as such, all else as text, numerals as
    both."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary
    for value in array.unique().drop_null().to_pylist():
        if isinstance(value, bool):
            yield "true" if value else "false"
        elif isinstance(value, bytes | str):
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            yield text
            number = read(text)
            if number is not None:
                yield number
        else:
            yield value


def wanted_by(predicate: Filter, context: Context, indexed: frozenset[str]) -> Array | None:
    """Hashes such that each match has one of them among its values; None if only a scan finds all matches."""
    wanted: set[int] = set()
    for conjunction in predicate.conjunctions:
        hashes = _wanted_by_one(conjunction, context, indexed)
        if hashes is None:
            return None
        wanted |= hashes
    return np.array(sorted(wanted), np.int64)


def _wanted_by_one(conjunction: Conjunction, context: Context, indexed: frozenset[str]) -> set[int] | None:
    for term in conjunction:
        match term.test:
            case SameKey() if not term.negated:
                return {hash(context.key)} if context.key else set()
            case Among("@key", values) if not term.negated and all(isinstance(v, Text) for v in values):
                return {hash(v.value.encode()) for v in values if isinstance(v, Text)}
            case Among(name, values) if not term.negated and name in indexed:
                return {hash((name, _form(value))) for value in values}
            case _:
                continue
    return None


def _form(value: Literal) -> object:
    if isinstance(value, Number | Text):
        return value.value
    return str(value)
