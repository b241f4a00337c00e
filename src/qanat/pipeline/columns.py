"""The one tabular form of a stream's events: what Spark reads, writes, archives, compacts, replays and
audits.

| column | type | holds |
|---|---|---|
| `stream` | string | the stream's name |
| `seq` | bigint | sequence number; a tombstone's is the last that it stands for |
| `kind` | string | `data`, `gc` or `tombstone` |
| `key` | binary | never null; an empty key is no key |
| `time` | timestamp | publish time, µs |
| `payload` | binary | never null; a tombstone's is empty |
| `attributes` | map<string,string> | never null; canonical text of every attribute |
| `types` | map<string,string> | which attributes are not text: `int`, `uint`, `float`, `bool`, `binary`; null if all are |
| `source` | struct<name,sequence,index> | position at the source; null if the event has none |

Nothing is lost on the way from a batch to rows and back (`arrow_of`, `events_from`): a tombstone that stands
for more than one event says how many in the attribute `@range`, which no event has. Sequences and indexes of
positions are the bits of their unsigned numbers, as Spark's integers are signed.
"""  # noqa: E501

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.events.batch import Batch, Kind, from_draft, stream_id
from qanat.events.encode import Array, Draft, strings
from qanat.events.errors import MalformedBatch
from qanat.pipeline.attribute_maps import RANGE_ATTRIBUTE, attributes_from, maps_of

_TEXTS = pa.map_(pa.string(), pa.string())
_SOURCE = pa.struct([("name", pa.string()), ("sequence", pa.int64()), ("index", pa.int32())])
ARROW = pa.schema(
    [
        ("stream", pa.string()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("key", pa.binary()),
        ("time", pa.timestamp("us", "UTC")),
        ("payload", pa.binary()),
        ("attributes", _TEXTS),
        ("types", _TEXTS),
        ("source", _SOURCE),
    ]
)
"""The form as Arrow knows it."""
DDL = (
    "stream string, seq bigint, kind string, key binary, time timestamp, payload binary, attributes"
    " map<string,string>, types map<string,string>, source struct<name:string,sequence:bigint,index:int>"
)
"""The form as Spark knows it."""
COLUMNS = tuple(ARROW.names)
FILED = pa.schema([field for field in ARROW if field.name != "stream"])
"""What an archive's files have of it: the stream is the name of their folder, and whoever reads both as
columns has two of one name."""
KINDS = tuple(kind.name.lower() for kind in Kind)
"""Words of the column `kind`, by the number that a batch has for each."""


# --- from a batch to rows ---------------------------------------------------------------------------


def arrow_of(stream: str, batch: Batch, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """A batch's rows; only these columns are made. Payloads and keys are the batch's own bytes, not
    copied."""
    made = {"attributes", "types"} & set(columns)
    maps = dict(zip(("attributes", "types"), maps_of(batch), strict=True)) if made else {}
    arrays = [maps[name] if name in maps else _column(name, stream, batch) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(tuple(columns)))


@lru_cache(64)
def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """The form with some of its columns alone."""
    return pa.schema([ARROW.field(name) for name in columns])


def _column(name: str, stream: str, batch: Batch) -> pa.Array:
    count = batch.count
    match name:
        case "stream":
            return repeated(stream, count)
        case "seq":
            return _plain(pa.int64(), batch.seqs().view(np.int64))
        case "kind":
            kinds = batch.kinds
            return (
                repeated(KINDS[0], count)
                if kinds is None
                else pa.array(KINDS).take(pa.array(kinds, pa.int8()))
            )
        case "key":
            return _binary(batch.keys(), count)
        case "time":
            return _plain(pa.timestamp("us", "UTC"), batch.times())
        case "payload":
            return _binary(batch.payloads(), count)
        case "source":
            return _source(batch)
    raise MalformedBatch(f"{name!r} is no column of a stream's events; there are {', '.join(COLUMNS)}")


def repeated(text: str, count: int) -> pa.Array:
    """One text in every row, without a loop and without Arrow's scalar machinery."""
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.int64) * len(data)
    if int(offsets[-1]) >= 1 << 31:
        raise MalformedBatch(f"{count} rows of a text of {len(data)} bytes do not fit into one Arrow array")
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data * count)]
    )


def _plain(kind: pa.DataType, values: Array) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _binary(values: pa.Array | None, count: int) -> pa.Array:
    """Fixed widths get offsets beside their bytes, which stay where they are."""
    if values is None:
        return pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")]
        )
    if values.type == pa.binary():
        return values
    width = values.type.byte_width
    offsets = (np.arange(count + 1, dtype=np.int64) + values.offset) * width
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets.astype(np.int32)), values.buffers()[1]]
    )


def _source(batch: Batch) -> pa.Array:
    count, names, positions = batch.count, batch.source_names, batch.positions()
    if not names and positions is None:
        return pa.nulls(count, _SOURCE)
    codes = batch.source_codes()
    if not names:
        name = pa.nulls(count, pa.string())
    elif codes is None:
        name = repeated(names[0], count)
    else:
        name = pa.array(names).take(pa.array(codes))
    if positions is None:
        places = [pa.nulls(count, pa.int64()), pa.nulls(count, pa.int32())]
    else:
        places = [
            _plain(pa.int64(), positions[0].view(np.int64)),
            _plain(pa.int32(), positions[1].view(np.int32)),
        ]
    return pa.StructArray.from_arrays([name, *places], fields=list(_SOURCE))


# --- from rows to a batch ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Events:
    """Rows as columns that a batch is made of; what a row set does not have is None."""

    payloads: pa.Array
    keys: pa.Array | None
    attributes: dict[str, list[pa.Array]]
    kinds: Array | None
    """Numbers of kinds; None if all are data."""
    times: Array | None
    """µs since the epoch."""
    seqs: Array | None
    ranges: Array | None
    """How many sequence numbers each row stands for; None if each is one."""
    sources: list[str]
    source_codes: Array | None
    positions: tuple[Array, Array] | None

    def __len__(self) -> int:
        return len(self.payloads)

    def publishing(self) -> dict[str, Any]:
        """What `Client.publish_many` and `publish_at` take beside the stream's name (and positions)."""
        return {"payloads": self.payloads, "keys": self.keys, "attributes": self.attributes or None}

    def batch(self, stream: str, first: int | None = None, last: int | None = None) -> Batch:
        """A batch with these sequence numbers; it covers first..last, by default from its first row to its
        last.

        Rows must rise by sequence number. Raises `MalformedBatch` if they do not.
        """
        seqs, ranges = self.seqs, self.ranges
        if seqs is None:
            raise MalformedBatch("rows without sequence numbers make no batch of a stream")
        if not len(seqs) and (first is None or last is None):
            raise MalformedBatch("no rows: say which sequence numbers the batch covers")
        if first is None:
            first = int(seqs[0]) - (0 if ranges is None else int(ranges[0]) - 1)
        span = (int(seqs[-1]) if last is None else last) - first + 1
        if span < len(seqs):
            raise MalformedBatch(
                f"{len(seqs)} rows do not fit into sequence numbers {first} to {first + span - 1}"
            )
        times = self.times
        time_us = 0 if times is None or not len(times) else int(times[0])
        own_times = times is not None and len(times) and bool((times != time_us).any())
        return from_draft(
            Draft(
                stream=stream_id(stream),
                payloads=strings(self.payloads, "payloads"),
                first=first,
                span=span,
                time_us=time_us,
                times=times if own_times else None,
                kinds=self.kinds,
                seqs=None if span == len(seqs) else seqs,
                ranges=ranges,
                keys=None if self.keys is None else strings(self.keys, "keys"),
                attributes=self.attributes,
                sources=self.sources,
                source_codes=self.source_codes,
                positions=self.positions,
            )
        )


def events_from(rows: pa.RecordBatch | pa.Table) -> Events:
    """Rows of this form (at least `payload`) as what batches and publishers take. Columns may be missing or
    null."""
    if isinstance(rows, pa.Table):
        rows = _single(rows)
    named = dict(zip(rows.schema.names, rows.columns, strict=True))
    if "payload" not in named:
        raise MalformedBatch(f"rows to publish have a column 'payload' (binary); these have {list(named)}")
    kinds = _kinds(named.get("kind"))
    attributes = attributes_from(named.get("attributes"), named.get("types"))
    ranges = None
    if kinds is not None and RANGE_ATTRIBUTE in attributes:
        ranges = _take_ranges(attributes, kinds == Kind.TOMBSTONE)
    names, codes, positions = _positions(named.get("source"))
    return Events(
        payloads=_bytes(named["payload"]),
        keys=_keys(named.get("key")),
        attributes=attributes,
        kinds=kinds,
        times=_integers(named.get("time"), np.int64),
        seqs=_integers(named.get("seq"), np.uint64),
        ranges=ranges,
        sources=names,
        source_codes=codes,
        positions=positions,
    )


def _take_ranges(attributes: dict[str, list[pa.Array]], graves: Array) -> Array | None:
    """What tombstones stand for, out of their attributes; an event may have an attribute of that name all the
    same."""
    ranges, kept = np.ones(len(graves), np.uint64), []
    for array in attributes.pop(RANGE_ATTRIBUTE):
        if array.type == pa.uint64():
            ranges = np.where(graves, np.asarray(array.fill_null(1)), ranges)
        rest = pc.if_else(pa.array(graves), pa.scalar(None, array.type), array)
        kept += [rest] if rest.null_count < len(rest) else []
    if kept:
        attributes[RANGE_ATTRIBUTE] = kept
    return ranges if (ranges > 1).any() else None


def _single(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise MalformedBatch("rows of more than 2 GiB in one column: take them in parts")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _bytes(values: pa.Array) -> pa.Array:
    if pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type):
        values = values.cast(pa.binary())
    return values.fill_null(b"" if pa.types.is_binary(values.type) else "") if values.null_count else values


def _keys(values: pa.Array | None) -> pa.Array | None:
    if values is None or values.null_count == len(values):
        return None
    return _bytes(values)


def _kinds(values: pa.Array | None) -> Array | None:
    if values is None or not len(values):
        return None
    found = pc.index_in(values, value_set=pa.array(KINDS))
    strange = pc.filter(values, pc.and_(values.is_valid(), found.is_null()))
    if len(strange):
        raise MalformedBatch(f"{strange[0].as_py()!r} is no kind of event; there are {', '.join(KINDS)}")
    numbers = np.asarray(found.fill_null(0)).astype(np.uint8)
    return numbers if numbers.any() else None


def _integers(values: pa.Array | None, kind: Any) -> Array | None:
    if values is None or values.null_count == len(values):
        return None
    if values.null_count:
        raise MalformedBatch("sequence numbers and times are there for all rows or for none")
    if pa.types.is_timestamp(values.type) and values.type.unit != "us":
        values = values.cast(pa.timestamp("us", values.type.tz))
    numbers: Array = np.frombuffer(values.buffers()[1], np.int64, len(values), 8 * values.offset)
    return np.asarray(numbers.view(kind))


def _positions(values: pa.Array | None) -> tuple[list[str], Array | None, tuple[Array, Array] | None]:
    if values is None or not len(values) or values.null_count == len(values):
        return [], None, None
    name, sequence, index = (pc.struct_field(values, [i]) for i in range(3))
    names: list[str] = []
    codes: Array | None = None
    if name.null_count < len(name):
        if name.null_count:
            raise MalformedBatch("rows with and without a source do not fit into one batch")
        coded = name.dictionary_encode()
        names = coded.dictionary.to_pylist()
        codes = np.asarray(coded.indices).astype(np.uint16) if len(names) > 1 else None
    if sequence.null_count == len(sequence):
        return names, codes, None
    if sequence.null_count or index.null_count:
        raise MalformedBatch("rows with and without positions do not fit into one batch")
    return names, codes, (np.asarray(sequence).view(np.uint64), np.asarray(index).view(np.uint32))


def joined(parts: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Small pieces of one form as one."""
    return _single(pa.Table.from_batches(list(parts)))
