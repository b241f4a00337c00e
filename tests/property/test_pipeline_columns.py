"""Any batch becomes rows of the tabular form and is the same batch again; in parts and in any split of its
rows as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.batch import Batch, Kind, from_draft, stream_id
from qanat.events.encode import strings
from qanat.events.tombstones import bury
from qanat.pipeline.columns import ARROW, arrow_of, events_from, joined

STREAM = "s"
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["a", "b", "@range", "naïve"]), VALUES, max_size=3)


def some(draw: st.DrawFn, values: st.SearchStrategy[Any], count: int) -> list[Any]:
    return draw(st.lists(values, min_size=count, max_size=count))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Events of every kind, with tombstones where some were collected, and perhaps a part of them alone."""
    count = draw(st.integers(1, 9))
    first = draw(st.integers(1, 1 << 40))
    width = draw(st.none() | st.integers(0, 4))
    payloads = st.binary(max_size=9) if width is None else st.binary(min_size=width, max_size=width)
    sources = draw(st.sampled_from([(), ("one",), ("one", "naïve", "three")]))
    codes = np.array(some(draw, st.integers(0, len(sources) - 1), count)) if len(sources) > 1 else None
    places = None
    if draw(st.booleans()) and sources:
        places = (
            np.array(some(draw, st.integers(0, (1 << 64) - 1), count), np.uint64),
            np.array(some(draw, st.integers(0, (1 << 32) - 1), count), np.uint32),
        )
    kinds = np.array(some(draw, st.sampled_from([Kind.DATA, Kind.GC]), count), np.uint8)
    whole = from_draft(
        Batch.build(
            stream_id(STREAM),
            some(draw, payloads, count),
            first=first,
            attributes=some(draw, ATTRIBUTES, count),
        )
        .draft()
        ._replace(
            time_us=draw(st.integers(-(1 << 60), 1 << 60)),
            times=(
                np.array(some(draw, st.integers(-(1 << 60), 1 << 60), count)) if draw(st.booleans()) else None
            ),
            kinds=kinds if kinds.any() else None,
            keys=strings(some(draw, st.binary(max_size=3), count), "keys") if draw(st.booleans()) else None,
            sources=sources,
            source_codes=codes,
            position=draw(st.integers(0, 1 << 40)) if sources and codes is None and places is None else None,
            positions=places,
        )
    )
    dead = np.array(some(draw, st.booleans(), count))
    buried = bury(whole, dead, first) if draw(st.booleans()) else whole
    assert buried is not None
    if draw(st.booleans()):
        buried = buried.take(np.array(some(draw, st.booleans(), buried.count), bool))
    if draw(st.booleans()):
        i = draw(st.integers(0, buried.count))
        return buried.slice(i, draw(st.integers(i, buried.count)))
    return buried


def content(batch: Batch) -> dict[str, Any]:
    kinds, ranges, keys, codes = batch.kinds, batch.ranges, batch.keys(), batch.source_codes()
    places, names = batch.positions(), batch.source_names
    return {
        "seqs": batch.seqs().tolist(),
        "kinds": [0] * batch.count if kinds is None else kinds.tolist(),
        "ranges": [1] * batch.count if ranges is None else ranges.tolist(),
        "times": batch.times().tolist(),
        "keys": [b""] * batch.count if keys is None else keys.to_pylist(),
        "payloads": batch.payloads().to_pylist(),
        "attributes": [
            sorted((name, type(value), repr(value)) for name, value in batch.attribute_row(i).items())
            for i in range(batch.count)
        ],
        "sources": (
            None if not names else [names[0]] * batch.count if codes is None else [names[c] for c in codes]
        ),
        "positions": None if places is None else (places[0].tolist(), places[1].tolist()),
    }


def rebuilt(rows: pa.RecordBatch, like: Batch) -> Batch:
    return Batch.decode(bytes(events_from(rows).batch(STREAM, like.first, like.last).encode()))


@given(batches(), st.data())
def test_nothing_is_lost_between_a_batch_and_rows_whole_or_in_parts(
    batch: Batch, data: st.DataObject
) -> None:
    """All of it for the same batches: to draw one costs more than what is done with it."""
    rows = arrow_of(STREAM, batch)
    rows.validate(full=True)
    assert rows.schema.equals(ARROW)
    if batch.count:
        assert content(rebuilt(rows, batch)) == content(batch)
    may_be_cut_and_joined(batch, rows, data.draw(st.integers(0, batch.count)))
    only_those_columns_are_made(batch, rows, data.draw(st.sets(st.sampled_from(ARROW.names))))


def may_be_cut_and_joined(batch: Batch, rows: pa.RecordBatch, cut: int) -> None:
    assert joined([rows.slice(0, cut), rows.slice(cut)]).equals(rows)
    if cut < batch.count:
        part = batch.slice(cut, batch.count)
        assert content(rebuilt(rows.slice(cut), part)) == content(part)


def only_those_columns_are_made(batch: Batch, rows: pa.RecordBatch, names: set[str]) -> None:
    part = arrow_of(STREAM, batch, sorted(names))
    assert part.schema.names == sorted(names)
    for name in names:  # as Arrow has them: Python's own dates end with the year 9999
        assert part[name].equals(rows[name])


def test_a_batch_without_anything_but_payloads_is_not_copied() -> None:
    batch = Batch.decode(bytes(Batch.build(stream_id(STREAM), [b"abcd", b"efgh"], first=5).encode()))
    payload = arrow_of(STREAM, batch)["payload"]
    assert payload.buffers()[2].address == batch.payloads().buffers()[1].address
