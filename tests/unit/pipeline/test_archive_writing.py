"""Rows that Spark hands to a task become files as if the stream's own reader had written them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from qanat.events.batch import Batch, stream_id
from qanat.pipeline.archive.writing import PIECE, write_partition
from qanat.pipeline.columns import FILED, arrow_of

pytestmark = pytest.mark.paper("D4")


def test_a_partition_becomes_a_file_for_each_piece_and_missing_types_stay_missing(tmp_path: Path) -> None:
    attributes = [{"n": n} if n % 3 == 0 else {"t": "x"} if n % 3 == 1 else {} for n in range(9)]
    batch = Batch.build(stream_id("s"), [b"%d" % n for n in range(9)], attributes=attributes)
    rows = pa.Table.from_batches([arrow_of("s", batch)]).select(FILED.names)
    types = rows["types"].combine_chunks()
    assert types.null_count == 6
    # As Spark hands them over: no map is null, moments have the session's zone, and batches are cut anywhere.
    whole = pa.array([[] if one is None else one for one in types.to_pylist()], types.type)
    given = rows.set_column(rows.schema.get_field_index("types"), "types", whole)
    local = given["time"].cast(pa.timestamp("us", "Europe/Amsterdam"))
    given = given.set_column(given.schema.get_field_index("time"), "time", local)
    given = given.append_column(PIECE, pa.array([0] * 4 + [2] * 5, pa.int32()))
    parts = [*given.slice(0, 3).to_batches(), *given.slice(3, 0).to_batches(), *given.slice(3).to_batches()]
    made = pa.Table.from_batches(list(write_partition(str(tmp_path), parts))).to_pylist()
    assert [one[PIECE] for one in made] == [0, 2]
    assert all(one["name"].endswith(".parquet.staged") for one in made)
    found = pa.concat_tables([pq.read_table(tmp_path / one["name"]) for one in made])
    assert found.cast(FILED).to_pylist() == rows.to_pylist()
    assert pc.sum(found["types"].is_null().cast(pa.int8())).as_py() == 6
