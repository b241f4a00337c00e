"""Rows of several tables, as they lie in the stream, made into runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.postgres.decode import (
    Bools,
    Ints,
    Payloads,
    decoded,
    images,
    loosened,
    misfits,
    must_fit,
    recoded,
    texts,
    unchanged,
)
from qanat.capture.postgres.messages import Kind, Relation
from qanat.capture.postgres.types import BUILT_IN, TEXT, Type, declared, type_of
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run


@dataclass(frozen=True, slots=True)
class Format:
    """How the rows of one version of a table are read."""

    table: Table
    types: tuple[Type, ...]
    codec: str = ""
    """In which texts are, if not in UTF-8."""


def format_of(
    relation: Relation,
    names: Mapping[int, str],
    database: str,
    primary_key: frozenset[str] | None = None,
    codec: str = "",
) -> Format:
    """`primary_key` is for tables whose replica identity is the whole row, which flags every column."""
    columns, types = [], []
    for attribute in relation.attributes:
        name = BUILT_IN.get(attribute.type_id) or names.get(attribute.type_id, "")
        kind = type_of(name, attribute.modifier)
        key = attribute.key if primary_key is None else attribute.name in primary_key
        columns.append(Column(attribute.name, kind.arrow, declared(name, attribute.modifier), key))
        types.append(kind)
    return Format(Table(database, relation.schema, relation.name, tuple(columns)), tuple(types), codec)


class Places(NamedTuple):
    """Where rows stand in the log: one entry for each row."""

    sequences: npt.NDArray[np.uint64]
    indexes: npt.NDArray[np.uint32]
    times_us: npt.NDArray[np.int64]
    transactions: pa.DictionaryArray

    def take(self, rows: Ints) -> "Places":
        indices = pa.array(rows)
        return Places(
            self.sequences[rows], self.indexes[rows], self.times_us[rows], self.transactions.take(indices)
        )


_OPS = np.zeros(256, np.uint8)
_OPS[[Kind.INSERT, Kind.UPDATE, Kind.DELETE]] = [Op.INSERT, Op.UPDATE, Op.DELETE]


def runs(
    payloads: Payloads, rows: Ints, prefix: int, formats: Mapping[int, Format], places: Places
) -> Iterator[Run]:
    """`rows` are numbers of messages, `places` has an entry for each of them."""
    at = payloads.starts[rows] + 1 + prefix
    must_fit(at, 4, payloads.ends[rows])
    tables = payloads.u32(at)
    owners = np.empty(len(rows), np.int64)
    locals_ = np.empty(len(rows), np.int64)
    parts: list[Run] = []
    for table in np.unique(tables):
        form = formats.get(int(table))
        if form is None:
            raise MalformedLog(f"rows of the table with number {table} came before its description")
        chosen = np.flatnonzero(tables == table)
        for within, run in _decode(payloads, rows[chosen], prefix, form, chosen, places):
            owners[within] = len(parts)
            locals_[within] = np.arange(len(within))
            parts.append(run)
    if len(parts) == 1:
        yield parts[0]
        return
    cuts = np.flatnonzero(np.diff(owners)) + 1
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        first = int(locals_[start])
        yield parts[owners[start]].slice(first, first + int(stop - start))


def _decode(
    payloads: Payloads, rows: Ints, prefix: int, form: Format, within: Ints, places: Places
) -> Iterator[tuple[Ints, Run]]:
    """One run, or more where values do not fit their types; with the numbers that the rows have among all."""
    found = images(payloads, rows, prefix, len(form.types))
    ops = _OPS[payloads.kinds[rows]]
    sides = (found.after, found.before)
    raws = [
        None if side is None else [recoded(texts(payloads, cells), form.codec) for cells in side.cells]
        for side in sides
    ]
    values, wrong = _values(raws, form)
    kept = unchanged(found.after, form.table)
    if len(within) < len(places.sequences):
        places = places.take(within)
    whole = Run(
        form.table,
        ops,
        *places,
        None,
        None,
        None if found.after is None else found.after.there,
        None if found.before is None else found.before.there,
        kept,
        found.key_only if found.key_only.any() else None,
    )
    if not wrong:
        yield within, _with_images(whole, form.table, values)
        return
    for mask, loose, binary in _alike(wrong, len(rows)):
        table = loosened(form.table, loose, binary)
        types = [
            Type(column.type, kind.decode if column.name not in loose else None)
            for column, kind in zip(table.columns, form.types, strict=True)
        ]
        chosen = pa.array(np.flatnonzero(mask))
        parts = [
            None
            if raw is None
            else [decoded(one.take(chosen), kind) for one, kind in zip(raw, types, strict=True)]
            for raw in raws
        ]
        yield within[mask], _with_images(whole.take(mask), table, parts)


def _with_images(run: Run, table: Table, values: Sequence[list[pa.Array] | None]) -> Run:
    after, before = (
        None if arrays is None else pa.RecordBatch.from_arrays(arrays, schema=table.arrow)
        for arrays in values
    )
    return replace(run, table=table, after=after, before=before)


_Wrong: TypeAlias = dict[str, tuple[Bools, Bools]]


def _values(
    raws: Sequence[list[pa.Array] | None], form: Format
) -> tuple[list[list[pa.Array] | None], _Wrong]:
    """The columns of both images; and for each column with values that its type cannot hold: which rows, and
    which are not even text."""
    wrong: _Wrong = {}
    values: list[list[pa.Array] | None] = []
    for raw in raws:
        if raw is None:
            values.append(None)
            continue
        arrays = []
        for column, kind, one in zip(form.table.columns, form.types, raw, strict=True):
            try:
                arrays.append(decoded(one, kind))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                bad, worse = misfits(one, kind), misfits(one, TEXT)
                if column.name in wrong:
                    bad, worse = bad | wrong[column.name][0], worse | wrong[column.name][1]
                wrong[column.name] = bad, worse
        values.append(arrays)
    return values, wrong


def _alike(wrong: _Wrong, count: int) -> Iterator[tuple[Bools, frozenset[str], frozenset[str]]]:
    """Rows by the columns that do not fit them."""
    names = list(wrong)
    bits = np.stack([mask for pair in wrong.values() for mask in pair])
    kinds, groups = np.unique(bits, axis=1, return_inverse=True)
    groups = groups.reshape(count)
    for number in range(kinds.shape[1]):
        pattern = kinds[:, number]
        loose = frozenset(name for place, name in enumerate(names) if pattern[2 * place])
        binary = frozenset(name for place, name in enumerate(names) if pattern[2 * place + 1])
        yield groups == number, loose, binary
