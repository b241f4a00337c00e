"""Runs of one version of a table, brought together: transactions that write to several tables in turn make
many short runs, and what is done column by column wants few long ones."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.table import Table
from qanat.capture.updates import Run, Updates


class Gathered(NamedTuple):
    """One run per version of a table. Laid end to end and then taken by `order`, their rows are in the order
    of the log."""

    runs: list[Run]
    order: npt.NDArray[np.int64]


def gather(updates: Updates) -> Gathered:
    groups: dict[Table, list[int]] = {}
    starts = np.cumsum([0, *map(len, updates.runs)])
    for number, run in enumerate(updates.runs):
        groups.setdefault(run.table, []).append(number)
    rows = [np.arange(starts[n], starts[n + 1]) for numbers in groups.values() for n in numbers]
    order = np.argsort(np.concatenate(rows), kind="stable") if rows else np.zeros(0, np.int64)
    return Gathered([joined([updates.runs[n] for n in numbers]) for numbers in groups.values()], order)


def joined(runs: Sequence[Run]) -> Run:
    """Runs of one version of a table as one, in their order."""
    if len(runs) == 1:
        return runs[0]
    table = runs[0].table
    names = {name: None for run in runs for name in run.unchanged or {}}
    unchanged = {
        name: np.concatenate([(run.unchanged or {}).get(name, np.zeros(len(run), bool)) for run in runs])
        for name in names
    }
    partial = any(run.key_only is not None for run in runs)
    return Run(
        table,
        np.concatenate([run.ops for run in runs]),
        np.concatenate([run.sequences for run in runs]),
        np.concatenate([run.indexes for run in runs]),
        np.concatenate([run.times_us for run in runs]),
        pa.concat_arrays([run.transactions.dictionary_decode() for run in runs]).dictionary_encode(),
        _images(table, runs, [run.after for run in runs]),
        _images(table, runs, [run.before for run in runs]),
        np.concatenate([run.afters for run in runs]),
        np.concatenate([run.befores for run in runs]),
        unchanged or None,
        np.concatenate([np.zeros(len(run), bool) if run.key_only is None else run.key_only for run in runs])
        if partial
        else None,
    )


def _images(
    table: Table, runs: Sequence[Run], images: Sequence[pa.RecordBatch | None]
) -> pa.RecordBatch | None:
    if all(image is None for image in images):
        return None
    columns = []
    for at, column in enumerate(table.columns):
        parts = [
            pa.nulls(len(run), column.type) if image is None else image.column(at)
            for run, image in zip(runs, images, strict=True)
        ]
        columns.append(pa.concat_arrays(parts))
    if not columns:
        return next(image for image in images if image is not None)
    return pa.RecordBatch.from_arrays(columns, schema=table.arrow)
