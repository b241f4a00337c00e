"""Compacting equals the log's own collection, and a naive model, on random histories; more than a hundred of
them in one job."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.rotation import few
from tests.spark.histories import (
    History,
    alive_by_model,
    collected_by_log,
    events_of,
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
ONCE, TWICE, ON_DISK = few(90, rarely=30), few(30, rarely=10), 5


def _rows(table: pa.Table | pa.RecordBatch, *, positions: bool) -> list[dict[str, Any]]:
    """Rows to compare; where a whole segment died the log no longer has the source position of a tombstone's
    last event."""
    rows = table.to_pylist()
    for row in rows:
        row["attributes"], row["types"] = dict(row["attributes"]), dict(row["types"] or {})
        if row["kind"] == "tombstone" and not positions:
            row["source"] = None
    return rows


@pytest.mark.rotating
@pytest.mark.paper("D5")
def test_what_is_left_is_what_a_log_leaves(spark: SparkSession, tmp_path: Path) -> None:
    """Histories that are compacted once, and others twice: half of their events, then what was left of these
    with the rest."""
    once = [random_history(f"once {i}", random.Random(f"{SEED} {i}")) for i in range(ONCE)]
    twice = [random_history(f"twice {i}", random.Random(f"{SEED} again {i}"), steps=2) for i in range(TWICE)]
    raw, expected = {}, {}
    for i, history in enumerate([*once, *twice]):
        disk = OsDisk() if i < ON_DISK else CrashDisk()
        raw[history.name], expected[history.name] = collected_by_log(disk, str(tmp_path / str(i)), history)
    given = {h.name: raw[h.name] for h in once}
    given |= {h.name: published(raw[h.name], upto=h.collected_upto()) for h in twice}
    found = _compacted(spark, [*once, *twice], given)
    spared = [_compare(h, raw[h.name], found[h.name], expected[h.name]) for h in once]

    given = {h.name: _joined(found[h.name], published(raw[h.name], after=h.collected_upto())) for h in twice}
    found = _compacted(spark, twice, given)
    spared += [_compare(h, given[h.name], found[h.name], expected[h.name]) for h in twice]
    assert sum(spared) <= 0.03 * len(spared), (
        f"QANAT_SEED={SEED}: the log left so much that little was compared"
    )


def _compacted(
    spark: SparkSession, histories: list[History], given: dict[str, pa.RecordBatch]
) -> dict[str, pa.Table]:
    table = pa.Table.from_batches(list(given.values())).combine_chunks()
    streams = [Stream(history.name, history.policy) for history in histories]
    left = compacted(spark.createDataFrame(table), streams).orderBy("stream", "seq").toArrow()
    coded = left["stream"].combine_chunks().dictionary_encode()
    return {
        name: left.filter(pa.compute.equal(coded.indices, code))
        for code, name in enumerate(coded.dictionary.to_pylist())
    }


def _joined(left: pa.Table, more: pa.RecordBatch) -> pa.RecordBatch:
    return (
        pa.concat_tables([left.cast(more.schema), pa.Table.from_batches([more])])
        .combine_chunks()
        .to_batches()[0]
    )


def _compare(history: History, given: pa.RecordBatch, found: pa.Table, expected: pa.RecordBatch) -> bool:
    """Whether the log has left some dead events in their places: where it collected before, it estimates how
    many a prefix takes."""
    told = f"{history.name} of QANAT_SEED={SEED}: {history.policy}"
    alive = _alive(found)
    events = events_of(given)
    assert alive == alive_by_model(events, history.policy), told
    assert unjustified(events, alive, history.policy) == [], told
    batches = [events_from(found.slice(i, 1)).batch(history.name) for i in range(found.num_rows)]
    check_merged(rows_of(batches))
    spared = _alive(expected) - alive
    if not spared:
        exactly = not history.collects
        assert _rows(found, positions=exactly) == _rows(expected, positions=exactly), told
    assert alive <= _alive(expected) and (not spared or history.collects), told
    return bool(spared)


def _alive(table: pa.Table | pa.RecordBatch) -> set[int]:
    return set(table.filter(pa.compute.not_equal(table["kind"], "tombstone"))["seq"].to_pylist())
