"""Adjacent batches made one: what rewriting a segment does to the survivors of many small batches."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.events.attributes import normalise, used
from qanat.events.batch import Batch, from_draft
from qanat.events.encode import Array, Draft, Strings, strings, uniform
from qanat.events.errors import MalformedBatch


def concat(batches: Sequence[Batch]) -> Batch:
    """One batch that covers what these cover together; each must start where the one before it ended."""
    if not batches:
        raise MalformedBatch("nothing to join")
    if len(batches) == 1:
        return batches[0]
    for a, b in pairwise(batches):
        if b.first != a.last + 1 or a.stream != b.stream:
            raise MalformedBatch(f"{a!r} and {b!r} are not adjacent")
    drafts = [batch.draft() for batch in batches]
    count = sum(batch.count for batch in batches)
    first, span = batches[0].first, batches[-1].last - batches[0].first + 1
    if len({draft.ghost for draft in drafts}) > 1:
        raise MalformedBatch("ghosts and batches with payload do not join")
    same_time = len({draft.time_us for draft in drafts}) == 1 and all(draft.times is None for draft in drafts)
    sources, codes = _sources(batches, drafts)
    return from_draft(
        Draft(
            stream=batches[0].stream,
            payloads=_payloads(batches, drafts, count),
            first=first,
            span=span,
            time_us=batches[0].time_us,
            times=None if same_time else np.concatenate([batch.times() for batch in batches]),
            kinds=_either(drafts, "kinds", np.uint8, 0),
            seqs=None if count == span else np.concatenate([batch.seqs() for batch in batches]),
            ranges=_either(drafts, "ranges", np.uint64, 1),
            keys=_keys(batches),
            attributes=_attributes(batches),
            sources=sources,
            source_codes=codes,
            **_positions(batches, drafts, codes),
            ghost=drafts[0].ghost,
        )
    )


def _either(drafts: Sequence[Draft], name: str, dtype: Any, default: int) -> Array | None:
    columns = [getattr(draft, name) for draft in drafts]
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [
            np.full(draft.payloads.count, default, dtype) if column is None else column
            for draft, column in zip(drafts, columns, strict=True)
        ]
    )


def _payloads(batches: Sequence[Batch], drafts: Sequence[Draft], count: int) -> Strings:
    if drafts[0].ghost:
        widths = {draft.payloads.width for draft in drafts}
        if len(widths) > 1:
            raise MalformedBatch("ghosts of different widths do not join")
        return uniform(drafts[0].payloads.width or 0, count)
    return strings(_chained([batch.payloads() for batch in batches]), "payloads")


def _keys(batches: Sequence[Batch]) -> Strings | None:
    columns = [batch.keys() for batch in batches]
    if all(column is None for column in columns):
        return None
    filled = [
        pa.array([b""], pa.binary()).take(pa.array(np.zeros(batch.count, np.int64)))
        if column is None
        else column
        for batch, column in zip(batches, columns, strict=True)
    ]
    return strings(_chained(filled), "keys")


def _chained(columns: Sequence[pa.Array]) -> pa.Array:
    if len({column.type for column in columns}) > 1:
        columns = [column.cast(pa.binary()) for column in columns]
    return pa.concat_arrays(columns)


def _attributes(batches: Sequence[Batch]) -> dict[str, list[pa.Array]]:
    by_type: dict[tuple[str, int], list[pa.Array | None]] = {}
    for i, batch in enumerate(batches):
        for name, arrays in batch.attributes().items():
            for array in arrays:
                code, normal = normalise(name, array, batch.count)
                by_type.setdefault((name, code), [None] * len(batches))[i] = normal
    result: dict[str, list[pa.Array]] = {}
    for (name, _), columns in by_type.items():
        coded = any(column is not None and pa.types.is_dictionary(column.type) for column in columns)
        columns = [None if column is None else _coded(column) for column in columns] if coded else columns
        kind = next(column.type for column in columns if column is not None)
        filled = [
            pa.nulls(batch.count, kind) if column is None else column
            for batch, column in zip(batches, columns, strict=True)
        ]
        # Texts stay in their dictionaries: written out, one of a megabyte that a thousand rows have would
        # take a gigabyte.
        joined = pa.chunked_array(filled).unify_dictionaries() if coded else pa.chunked_array(filled)
        result.setdefault(name, []).append(joined.combine_chunks())
    return result


def _coded(column: pa.Array) -> pa.Array:
    """As a dictionary whose codes have the type that all dictionaries of the house can be joined in."""
    column = used(column) if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary)


def _sources(batches: Sequence[Batch], drafts: Sequence[Draft]) -> tuple[list[str], Array | None]:
    """All names, and a code per row when there is more than one; rows without a source cannot join those that
    have one."""
    names = sorted({name for draft in drafts for name in draft.sources})
    if names and any(not draft.sources and draft.payloads.count for draft in drafts):
        raise MalformedBatch("batches with and without a source do not join")
    if len(names) < 2:
        return names, None
    if len(names) > 0xFFFF:
        raise MalformedBatch(f"{len(names)} sources in one batch; at most 65,535")
    codes = []
    for batch, draft in zip(batches, drafts, strict=True):
        own = np.array([names.index(name) for name in draft.sources], np.uint16)
        column = draft.source_codes
        codes.append(
            np.full(batch.count, own[0] if len(own) else 0, np.uint16) if column is None else own[column]
        )
    return names, np.concatenate(codes)


def _positions(batches: Sequence[Batch], drafts: Sequence[Draft], codes: Array | None) -> dict[str, Any]:
    columns = [batch.positions() for batch in batches]
    if all(column is None for column in columns):
        return {}
    if any(column is None and batch.count for column, batch in zip(columns, batches, strict=True)):
        raise MalformedBatch("batches with and without positions do not join")
    there = [column for column in columns if column is not None]
    sequences, indexes = np.concatenate([c[0] for c in there]), np.concatenate([c[1] for c in there])
    dense = codes is None and all(draft.position is not None for draft in drafts)
    if dense and len(sequences) and (np.diff(sequences.astype(np.int64)) == 1).all():
        return {"position": int(sequences[0])}
    return {"positions": (sequences, indexes)}
