"""Updates taken apart by routes, column by column: what goes into which stream, and what cannot go anywhere.

An update that makes a step fail is found by halving: the good path never looks at single updates.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.events import Events, events_of
from qanat.capture.sharding import SHARD, has_row
from qanat.capture.updates import Run, Updates
from qanat.events.batch import Batch
from qanat.events.filters import Filter, evaluate
from qanat.events.position import Position
from qanat.pipeline.ingest.dead_letters import Letter
from qanat.pipeline.ingest.routes import Routes, Way, bad_name

_Mask = npt.NDArray[np.bool_]
_EVALUATED_BYTES = 4 * 1024 * 1024
"""A filter is evaluated on a batch, which has a limit; far below it."""
_OVERHEAD_BYTES = 4096
"""Header, names and offsets of a batch of one event."""


@dataclass(slots=True)
class Routed:
    """What became of some updates."""

    read: int = 0
    chosen: int = 0
    """Those that passed the source's own tables and filter."""
    parts: list[dict[str, Events]] = field(default_factory=list)
    """Events by stream, to be published one after the other: more than one part only around what could not be
    routed."""
    time_us: int = 0
    """When the last of them was committed, if the log says."""
    letters: list[Letter] = field(default_factory=list)

    def __add__(self, other: "Routed") -> "Routed":
        return Routed(
            self.read + other.read,
            self.chosen + other.chosen,
            self.parts + other.parts,
            max(self.time_us, other.time_us),
            self.letters + other.letters,
        )


def route(updates: Updates, routes: Routes, source: str) -> Routed:
    """`source` is the log's name, which filters may ask for."""
    try:
        return _route(updates, routes, source)
    except MemoryError:
        raise
    except Exception as error:
        if len(updates) > 1:
            first, second = _halves(updates)
            return route(first, routes, source) + route(second, routes, source)
        return Routed(len(updates), letters=[_untranslated(updates, error)])


def taken(events: Events, rows: npt.NDArray[np.int64]) -> Events:
    """Some of the events."""
    if len(rows) == len(events):
        return events
    which = pa.array(rows)
    attributes = {name: [array.take(which) for array in arrays] for name, arrays in events.attributes.items()}
    kept = {
        name: [array for array in arrays if array.null_count < len(array)]
        for name, arrays in attributes.items()
    }
    return Events(
        events.payloads.take(which),
        events.keys.take(which),
        {name: arrays for name, arrays in kept.items() if arrays},
        events.sequences[rows],
        events.indexes[rows],
    )


def letter_of(events: Events, row: int, stage: str, reason: str) -> Letter:
    """An event that was made and cannot be published."""
    position = Position(int(events.sequences[row]), int(events.indexes[row]))
    table = events.keys[row].as_py().split(b"/", 1)[0].decode(errors="replace")
    return Letter(position, stage, reason, "json", events.payloads[row].as_py(), table)


def _route(updates: Updates, routes: Routes, source: str) -> Routed:
    out = Routed(len(updates))
    if routes.tables:
        updates = Updates([run for run in updates.runs if routes.choice.names(run.table.path)], updates.upto)
    if not updates:
        return out
    events = events_of(updates, routes.sharding)
    batches = (
        list(_batches(events, source)) if routes.filter or any(way.filter for way in routes.ways) else []
    )
    chosen = _matching(routes.filter, batches, len(events))
    out.chosen = int(np.count_nonzero(chosen))
    out.time_us = int(updates.runs[-1].times_us[-1])
    good = chosen & ~_too_large(events, chosen, routes.largest_bytes, out)
    rowless = ~np.concatenate([has_row(run) for run in updates.runs])
    masks: dict[str, _Mask] = {}
    covered = ~good
    for way in routes.ways:
        mask = good & _matching(way.filter, batches, len(events)) & _of_tables(way, updates)
        covered |= mask
        if not way.sharded:
            _join(masks, way.name(), mask)
        else:
            _by_shard(events, mask, rowless, (way, routes), masks, out)
    if routes.unrouted != "drop" and not covered.all():
        for row in np.flatnonzero(~covered).tolist():
            out.letters.append(letter_of(events, row, "route", "no route takes it"))
    found = {stream: np.flatnonzero(mask) for stream, mask in masks.items()}
    if parts := {stream: taken(events, rows) for stream, rows in found.items() if len(rows)}:
        out.parts.append(parts)
    out.letters.sort(key=lambda letter: letter.position)
    return out


def _join(masks: dict[str, _Mask], stream: str, mask: _Mask) -> None:
    """A stream to which several routes lead gets what any of them takes, once."""
    masks[stream] = masks[stream] | mask if stream in masks else mask


def _by_shard(
    events: Events,
    mask: _Mask,
    rowless: _Mask,
    routed: tuple[Way, Routes],
    masks: dict[str, _Mask],
    out: Routed,
) -> None:
    """A mask for each shard that occurs. What concerns no row alone concerns all shards, where it is known
    which there are."""
    way, routes = routed
    coded = _shards(events).dictionary_encode()
    codes = np.asarray(coded.indices.fill_null(-1))
    for code, shard in enumerate(coded.dictionary.to_pylist()):
        rows = mask & (codes == code)
        if not rows.any():
            continue
        stream = way.name(shard)
        if what := bad_name(stream):
            for row in np.flatnonzero(rows).tolist():
                out.letters.append(letter_of(events, row, "route", f"by its shard, {what}"))
        else:
            _join(masks, stream, rows)
    without = mask & (codes == -1)
    if not without.any():
        return
    everywhere = without & rowless if routes.sharding.shards else np.zeros(len(events), bool)
    for number in range(routes.sharding.shards if everywhere.any() else 0):
        _join(masks, way.name(str(number)), everywhere)
    for row in np.flatnonzero(without & ~everywhere).tolist():
        out.letters.append(
            letter_of(
                events, row, "route", f"it has no shard ({routes.sharding}), which {way.stream!r} needs"
            )
        )


def _shards(events: Events) -> pa.Array:
    """The shard of each event as text; null where there is none."""
    found: pa.Array = pa.nulls(len(events), pa.string())
    for values in events.attributes.get(SHARD, []):
        plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        texts = plain.cast(pa.string())
        found = texts if found.null_count == len(found) else pc.coalesce(found, texts)
    return found


def _of_tables(way: Way, updates: Updates) -> _Mask:
    if not way.tables:
        return np.ones(len(updates), bool)
    names = [way.choice.names(run.table.path) for run in updates.runs]
    return np.repeat(np.array(names, bool), [len(run) for run in updates.runs])


def _batches(events: Events, source: str) -> Iterator[Batch]:
    """What filters are evaluated on, in pieces."""
    size = sum(array.nbytes for arrays in events.attributes.values() for array in arrays) + events.keys.nbytes
    lengths = pc.min_element_wise(pc.binary_length(events.payloads), _EVALUATED_BYTES)
    total = size + int(pc.sum(lengths).as_py() or 0)
    step = max(1, len(events) * _EVALUATED_BYTES // max(total, 1))
    for start in range(0, len(events), step):
        part = slice(start, start + step)
        attributes = {name: [array[part] for array in arrays] for name, arrays in events.attributes.items()}
        yield Batch.build(
            0,
            _shortened(events.payloads[part]),
            keys=events.keys[part],
            attributes=attributes or None,
            source=source,
            positions=(events.sequences[part], events.indexes[part]),
        )


def _shortened(payloads: pa.Array) -> pa.Array:
    """No filter looks into a payload; its size is seen up to some megabytes."""
    longest = pc.max(pc.binary_length(payloads)).as_py() or 0
    return pc.binary_slice(payloads, 0, _EVALUATED_BYTES) if longest > _EVALUATED_BYTES else payloads


def _matching(where: Filter | None, batches: list[Batch], count: int) -> _Mask:
    if where is None:
        return np.ones(count, bool)
    return np.concatenate([np.asarray(evaluate(where, batch), bool) for batch in batches])


def _too_large(events: Events, chosen: _Mask, limit: int, out: Routed) -> _Mask:
    """Rows that fit into no frame; most columns are short, so the sum is made only where the payload is
    not."""
    lengths = np.asarray(pc.binary_length(events.payloads), np.int64) + np.asarray(
        pc.binary_length(events.keys), np.int64
    )
    suspects = np.flatnonzero(chosen & (lengths > limit // 8))
    large = np.zeros(len(events), bool)
    for row in suspects.tolist():
        one = taken(events, np.array([row]))
        size = int(lengths[row]) + _OVERHEAD_BYTES
        size += sum(array.nbytes for arrays in one.attributes.values() for array in arrays)
        if size > limit:
            large[row] = True
            reason = f"as an event it has {size:,} bytes, over the limit of {limit:,}"
            out.letters.append(letter_of(events, row, "publish", reason))
    return large


def _halves(updates: Updates) -> tuple[Updates, Updates]:
    middle, first, second = len(updates) // 2, [], []
    for run in updates.runs:
        cut = min(max(middle, 0), len(run))
        first.append(run.slice(0, cut))
        second.append(run.slice(cut, len(run)))
        middle -= len(run)
    return Updates(first), Updates(second, updates.upto)


def _untranslated(updates: Updates, error: Exception) -> Letter:
    """The one update as it was decoded."""
    (run,) = updates.runs
    reason = f"{type(error).__name__}: {error}".splitlines()[0][:500]
    return Letter(run.position(0), "translate", reason, "arrow", _as_arrow(run), run.table.path)


def _as_arrow(run: Run) -> bytes:
    """All that is known of a row, as an Arrow stream: what happened, and its columns before and after it."""
    run = run.take(np.ones(1, bool))  # a slice would bring the bytes of its neighbours along
    columns: dict[str, pa.Array] = {
        "op": pa.array(run.ops),
        "time_us": pa.array(run.times_us),
        "transaction": run.transactions.dictionary_decode(),
    }
    for image, batch in (("before", run.before), ("after", run.after)):
        if batch is not None:
            columns |= {f"{image}.{name}": batch.column(at) for at, name in enumerate(batch.schema.names)}
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_batch(made)
    return bytes(sink.getvalue())
