"""The subscribers' side: files of recordings, first as one line about each, then as blocks of what was handed
over."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from qanat.client.record_format import SUFFIX, CorruptRecord, Entry, Heading
from qanat.client.record_reader import Runs, decode_record
from qanat.pipeline.audit.blocks import Pieces, cut, groups, pack_pieces
from qanat.pipeline.audit.subscribers import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_DDL = "path string, part string, damage string"
_PART = pa.schema([("path", pa.string()), ("part", pa.string()), ("damage", pa.string())])
SIDE_DDL = "stream int, block bigint, side int, run int, number int, rows int, packed binary"
"""Blocks of both sides in one form: `side` 0 is the archive's; `number` is a file of the run, or a piece of
the archive."""
SIDE = pa.schema(
    [
        ("stream", pa.int32()),
        ("block", pa.int64()),
        ("side", pa.int32()),
        ("run", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int32()),
        ("packed", pa.binary()),
    ]
)
_BLOCKS_PER_BATCH = 64


def files(spark: "SparkSession", path: str) -> "DataFrame":
    """Every file of a recording at or below a path: its path and its bytes."""
    return (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", f"*{SUFFIX}")
        .load(path)
        .select("path", "content")
    )


def parts(found: "DataFrame") -> tuple[list[Part], list[str]]:
    """What each file says about itself, and a sentence for each that is damaged."""
    told = found.mapInArrow(_describe, PART_DDL).collect()
    good = [msgspec.json.decode(row.part, type=Part) for row in told if row.part is not None]
    return good, sorted(row.damage for row in told if row.damage is not None)


def _describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, content in _contents(batch):
            part, damage = None, None
            try:
                part = _part(path, content)
            except CorruptRecord as error:
                damage = str(error)
            if part is not None or damage is not None:
                text = None if part is None else msgspec.json.encode(part).decode()
                yield pa.RecordBatch.from_arrays([[path], [text], [damage]], schema=_PART)


def _part(path: str, content: bytes) -> Part | None:
    recorded = decode_record(content, path)
    if recorded is None:
        return None
    runs = recorded.runs
    handed = runs.kind <= Entry.TOMBSTONE
    return Part(
        path=path,
        heading=recorded.heading,
        high=int(runs.last[handed].max()) if handed.any() else 0,
        reach=int(runs.last.max()) if len(runs.last) else 0,
        entries=len(runs.kind),
        ended=bool(len(runs.kind)) and int(runs.kind[-1]) == Entry.END,
        torn_bytes=recorded.torn_bytes,
    )


class Place(msgspec.Struct, frozen=True):
    """What the blocks of a run need to know of it."""

    run: int
    stream: int
    highs: tuple[int, ...]


def blocks(found: "DataFrame", places: Mapping[str, Place]) -> "DataFrame":
    """What was handed over, by blocks; of the runs in `places` alone."""
    known = dict(places)

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in _contents(batch):
                try:
                    recorded = decode_record(content, path)
                except CorruptRecord:
                    continue  # it was told of before
                if recorded is not None and recorded.heading.run in known:
                    yield from _blocks(recorded.heading, recorded.runs, known[recorded.heading.run])

    return found.mapInArrow(split, SIDE_DDL)


def _contents(batch: pa.RecordBatch) -> Iterator[tuple[str, bytes]]:
    paths, contents = batch.columns
    for i in range(batch.num_rows):
        yield paths[i].as_py(), contents[i].as_py()


def _blocks(heading: Heading, runs: Runs, place: Place) -> Iterator[pa.RecordBatch]:
    told = runs.kind <= Entry.LOST  # that something was covered, or ended, is in the run's reach
    kind, time_us = runs.kind[told], runs.time_us[told]
    first, last = runs.first[told], runs.last[told]
    handed = np.where(kind <= Entry.TOMBSTONE, last, 0)
    before = place.highs[heading.part]
    high = np.maximum.accumulate(np.concatenate(([before], handed)))[:-1] if len(first) else first
    pieces = cut(first, last)
    rows = []
    for block, of in groups(pieces.block):
        origin = pieces.of[of]
        packed = pack_pieces(
            Pieces(pieces.at[of], pieces.to[of], kind[origin], time_us[origin], high[origin])
        )
        rows.append((place.stream, block, 1, place.run, heading.part, len(of), packed))
        if len(rows) == _BLOCKS_PER_BATCH:
            yield side(rows)
            rows = []
    if rows:
        yield side(rows)


def side(rows: list[tuple[int, int, int, int, int, int, bytes]]) -> pa.RecordBatch:
    """Rows of `SIDE`; a few for each batch."""
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SIDE, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SIDE)
