"""Which updates of a read are whose: by shard, by filter, by position. Columns only; loops are over distinct
shards."""

import zlib
from collections.abc import Container, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.events.batch import Batch
from qanat.events.filters import Filter, FilterIndex
from qanat.events.position import Position

Table: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int32]

SHARD = "#S"
UNSHARDED = ""
"""The shard of updates that name none."""
EVERY = -1
"""The code of updates that concern every shard: what happened to a whole table or to a range of keys."""
UNSEEN = -3
"""The code of shards that nobody has, and nobody looks for."""
_WIDE = ("truncate", "delete_range")


def grown(table: Table, size: int) -> Table:
    if len(table) >= size:
        return table
    larger = np.zeros(max(size, 2 * len(table), 16), bool)
    larger[: len(table)] = table
    return larger


def base_shard(part: int, parts: int) -> str:
    """Whom to tell what a part lost before its shards were known: a flow of its own."""
    return UNSHARDED if parts == 1 else f"#{part}"


def part_of(shard: str, parts: int) -> int:
    """Shards are divided by a hash of their names; the flow that stands for a part is in it."""
    if parts == 1:
        return 0
    if shard[:1] == "#" and shard[1:].isdecimal() and int(shard[1:]) < parts:
        return int(shard[1:])
    return zlib.crc32(shard.encode()) % parts


def position_at(batch: Batch, row: int) -> Position:
    places = batch.positions()
    if places is None:
        raise ValueError("a batch of updates has positions")
    return Position(int(places[0][row]), int(places[1][row]))


def first_after(batch: Batch, position: Position) -> int:
    """The first row beyond a position; positions rise from row to row."""
    places = batch.positions()
    if places is None:
        raise ValueError("a batch of updates has positions")
    sequences, indexes = places
    low = int(np.searchsorted(sequences, np.uint64(position.sequence), "left"))
    high = int(np.searchsorted(sequences, np.uint64(position.sequence), "right"))
    return low + int(np.searchsorted(indexes[low:high], np.uint32(position.index), "right"))


class Router:
    """Shards by number, in the order in which they were first seen."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.names: list[str] = []
        self.part: list[int] = []
        self._codes: dict[str, int] = {}

    def code(self, shard: str) -> int:
        found = self._codes.get(shard)
        if found is None:
            found = self._codes[shard] = len(self.names)
            self.names.append(shard)
            self.part.append(part_of(shard, self.parts))
        return found

    def codes(self, batch: Batch, wanted: Container[int] | None = None) -> Codes:
        """The code of each row's shard. Of those that were not seen before, the ones of the parts that are
        `wanted` get one (None: all)."""
        attributes: dict[str, list[Any]] = batch.attributes()
        codes = np.full(batch.count, -2, np.int32)
        for column in attributes.get(SHARD, []):
            self._fill(codes, column, wanted)
        bare = codes == -2
        if bare.any():
            codes[bare] = self.code(UNSHARDED)
            for column in attributes.get("#op", []):
                plain = _encoded(column)
                wide = [at for at, word in enumerate(plain.dictionary.to_pylist()) if word in _WIDE]
                if wide:
                    codes[bare & np.isin(_indices(plain), wide)] = EVERY
        return codes

    def _known(self, shard: str, wanted: Container[int] | None) -> int:
        if wanted is None or shard in self._codes or part_of(shard, self.parts) in wanted:
            return self.code(shard)
        return UNSEEN

    def _fill(self, codes: Codes, column: pa.Array, wanted: Container[int] | None) -> None:
        plain = _encoded(column)
        known = np.array(
            [self._known(_text(value), wanted) for value in plain.dictionary.to_pylist()] + [0], np.int32
        )
        which = _indices(plain)
        there = which >= 0
        codes[there] = known[which[there]]


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)


def _indices(encoded: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Into the dictionary, -1 where there is no value."""
    found: npt.NDArray[np.int64] = (
        encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    )
    return found


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value).lower() if isinstance(value, bool) else str(value)


class Filters:
    """The filters of all applications, evaluated together, once per read."""

    def __init__(self) -> None:
        self._index = FilterIndex()
        self._filters: dict[int, Filter] = {}
        self.columns: tuple[str, ...] = ()
        """What they look at in rows, by name."""

    def set(self, number: int, filter: Filter | None) -> None:
        """Of one application; None: it has none, and gets everything."""
        if self._filters.get(number) == filter:
            return
        if number in self._filters:
            self._index.remove(number)
            del self._filters[number]
        if filter is not None:
            self._index.add(number, filter)
            self._filters[number] = filter
        names = {name for each in self._filters.values() for name in each.names}
        self.columns = tuple(sorted(name for name in names if not name.startswith("#")))

    def passed(self, batch: Batch, numbers: Iterable[int]) -> dict[int, Table]:
        """Which rows pass, for those of these applications that have a filter."""
        wanted = [number for number in numbers if number in self._filters]
        if not wanted:
            return {}
        matches = self._index.match(batch)
        rows, ids = matches.rows, matches.ids
        found: dict[int, Table] = {}
        for number in wanted:
            mask = np.zeros(batch.count, bool)
            mask[rows[ids == number]] = True
            found[number] = mask
        return found
