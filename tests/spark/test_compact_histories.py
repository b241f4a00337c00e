"""Compacting equals the log's own collection, and a naive model, on random histories; hundreds of them in one job."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.spark.histories import (
    History,
    alive_by_model,
    collected_by_log,
    published,
    random_history,
    unjustified,
)

from qanat.log.checker import check_merged, rows_of
from qanat.log.crash_disk import CrashDisk
from qanat.log.disk import OsDisk
from qanat.pipeline.columns import events_from
from qanat.pipeline.compact.collection import Stream, compacted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SEED = os.environ.get("QANAT_SEED", "compact")
ONCE, TWICE, ON_DISK = 170, 60, 10


def _rows(table: pa.Table | pa.RecordBatch, *, positions: bool) -> list[dict[str, Any]]:
    """Rows to compare; where a whole segment died the log no longer has the source position of a tombstone's last event."""
    rows = table.to_pylist()
    for row in rows:
        row["attributes"], row["types"] = dict(row["attributes"]), dict(row["types"] or {})
        if row["kind"] == "tombstone" and not positions:
            row["source"] = None
    return rows


def _streams(histories: list[History]) -> list[Stream]:
    return [Stream(history.name, history.policy) for history in histories]


def _by_stream(table: pa.Table) -> dict[str, pa.Table]:
    coded = table["stream"].combine_chunks().dictionary_encode()
    return {
        name: table.filter(pa.compute.equal(coded.indices, code))
        for code, name in enumerate(coded.dictionary.to_pylist())
    }


@pytest.mark.timeout(400)
@pytest.mark.paper("D5")
def test_what_is_left_is_what_a_log_leaves(spark: SparkSession, tmp_path: Path) -> None:
    once = [random_history(f"once {i}", random.Random(f"{SEED} {i}")) for i in range(ONCE)]
    twice = [random_history(f"twice {i}", random.Random(f"{SEED} again {i}"), steps=2) for i in range(TWICE)]
    raw, expected = {}, {}
    for i, history in enumerate([*once, *twice]):
        disk = OsDisk() if i < ON_DISK else CrashDisk()
        raw[history.name], expected[history.name] = collected_by_log(disk, str(tmp_path / str(i)), history)
    beginnings = {h.name: published(raw[h.name], upto=h.collected_upto()) for h in twice}
    first = spark.createDataFrame(
        pa.Table.from_batches(
            [*(raw[history.name] for history in once), *beginnings.values()]
        ).combine_chunks()
    )
    found = _by_stream(compacted(first, _streams([*once, *twice])).orderBy("stream", "seq").toArrow())
    for history in once:
        _compare(history, found[history.name], expected[history.name], raw[history.name])

    endings = [published(raw[h.name], after=h.collected_upto()) for h in twice]
    second = spark.createDataFrame(
        pa.concat_tables([*(found[h.name] for h in twice), pa.Table.from_batches(endings)]).combine_chunks()
    )
    found = _by_stream(compacted(second, _streams(twice)).orderBy("stream", "seq").toArrow())
    for history in twice:
        _compare(history, found[history.name], expected[history.name], raw[history.name])


def _compare(history: History, found: pa.Table, expected: pa.RecordBatch, raw: pa.RecordBatch) -> None:
    exactly = not history.collects
    told = f"{history.name} of QANAT_SEED={SEED}: {history.policy}"
    assert _rows(found, positions=exactly) == _rows(expected, positions=exactly), told
    alive = {row["seq"] for row in found.to_pylist() if row["kind"] != "tombstone"}
    if not history.reopens:
        assert alive == alive_by_model(raw, history.policy), told
    assert unjustified(raw, alive, history.policy) == [], told
    batches = [events_from(found.slice(i, 1)).batch(history.name) for i in range(found.num_rows)]
    check_merged(rows_of(batches))
