"""Matches a batch against very many filters at once.

Filters added are gathered, and planned when the next batch comes. Plans are kept in levels, each eight times
as large as the one before: a new filter is planned together with the levels that it fills up, so a hundred
thousand filters added one by one, with a batch after each, are planned a few dozen times each, not a hundred
thousand times. A filter removed is forgotten at once; its entries in the plans are skipped, and when they are
more than the living ones, all is begun anew.
"""

from array import array
from typing import NamedTuple

import numpy as np

from qanat.events.batch import Batch
from qanat.events.filters.errors import ContextError, FilterError
from qanat.events.filters.lookup import Lookup
from qanat.events.filters.model import Filter
from qanat.events.filters.numbers import Array
from qanat.events.filters.plan import Plan
from qanat.events.filters.registry import Registry, expand

_FIRST_LEVEL, _GROWTH = 256, 8  # entries
_SPARE = 1024  # dead entries that are not worth planning anew for


class Matches(NamedTuple):
    """The filters that match each row: `ids[offsets[i]:offsets[i + 1]]`, in the order in which they were
    added."""

    offsets: Array
    ids: Array

    def of(self, row: int) -> Array:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def rows(self) -> Array:
        """The row of each id: with `ids`, the matches as pairs."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class _Level(NamedTuple):
    """Entries (conjunction of the registry, serial number of the filter) and the plan for their
    conjunctions."""

    conjunctions: Array
    serials: Array
    plan: Plan
    bounds: Array  # the serials of the plan's conjunction i are serials[bounds[i]:bounds[i + 1]]


class FilterIndex:
    """A set of filters by id. `add` and `remove` cost microseconds; `match` no loop over events nor filters.

    Ids are the caller's, and fit int64. Not for use by several threads at once.
    """

    def __init__(self) -> None:
        self._filters: dict[int, tuple[int, Filter]] = {}  # id -> (serial number, filter)
        self._reset()

    def _reset(self) -> None:
        self._registry = Registry()
        self._levels: list[_Level | None] = []
        self._pending_conjunctions, self._pending_serials = array("q"), array("q")
        self._ids = array("q")  # by serial number
        self._alive = array("b")
        self._entries, self._dead = 0, 0
        self._lives: tuple[Array, Array] | None = None

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: int) -> bool:
        return id in self._filters

    @property
    def entries(self) -> int:
        """Alternatives of all filters, with those of some that are gone."""
        return self._entries

    def add(self, id: int, f: Filter) -> None:
        """Raises `FilterError` if the id is there already or the filter is contextual."""
        if id in self._filters:
            raise FilterError(f"the index has a filter {id} already; remove it first")
        if not -(1 << 63) <= id < 1 << 63:
            raise FilterError(f"a filter's id fits int64, and {id} does not")
        if f.contextual:
            raise ContextError(f"'{f}' speaks of a garbage collection event, so it cannot be a subscription")
        self._insert(id, f)

    def remove(self, id: int) -> None:
        """Raises `FilterError` if there is no such filter."""
        if id not in self._filters:
            raise FilterError(f"the index has no filter {id}")
        serial, f = self._filters.pop(id)
        self._alive[serial] = 0
        self._dead += max(1, len(f.conjunctions))
        self._lives = None
        if self._mostly_dead:
            self._begin_anew()

    def match(self, batch: Batch) -> Matches:
        """The filters that match each row of the batch; the answer takes 8 bytes per match and row."""
        self._flush()
        lookup = Lookup(self._registry, batch)
        ids, alive = self._living()
        none = np.zeros(0, np.int64)
        rows, serials = [none], [none]
        for level in self._levels:
            if level is not None:
                row, conjunction = level.plan.match(lookup)
                owner, at = expand(level.bounds[conjunction], level.bounds[conjunction + 1])
                rows.append(row[owner])
                serials.append(level.serials[at])
        row, serial = np.concatenate(rows), np.concatenate(serials)
        if self._dead:
            living = alive[serial]
            row, serial = row[living], serial[living]
        return _by_row(row, serial, batch.count, ids)

    # --- keeping the plans --------------------------------------------------------------------------

    def _insert(self, id: int, f: Filter) -> None:
        serial = len(self._ids)
        self._filters[id] = serial, f
        self._ids.append(id)
        self._alive.append(1)
        for conjunction in f.conjunctions:
            self._pending_conjunctions.append(self._registry.conjunction(conjunction))
            self._pending_serials.append(serial)
        self._entries += max(1, len(f.conjunctions))
        self._lives = None

    def _living(self) -> tuple[Array, Array]:
        if self._lives is None:
            self._lives = np.array(self._ids, np.int64), np.array(self._alive, np.bool_)
        return self._lives

    @property
    def _mostly_dead(self) -> bool:
        return self._dead > _SPARE and self._dead * 2 > self._entries

    def _begin_anew(self) -> None:
        """At once, and not with the next batch, which may never come: what is remembered of dead ones is
        memory that nobody answers for."""
        filters, self._filters = self._filters, {}
        self._reset()
        for id, (_, f) in filters.items():
            self._insert(id, f)

    def _flush(self) -> None:
        """Plans what has been added since the last batch, together with the levels that it fills up."""
        if not self._pending_serials:
            return
        conjunctions = [np.array(self._pending_conjunctions, np.int64)]
        serials = [np.array(self._pending_serials, np.int64)]
        self._pending_conjunctions, self._pending_serials = array("q"), array("q")
        level, room = 0, _FIRST_LEVEL
        while True:
            if level == len(self._levels):
                self._levels.append(None)
            lower = self._levels[level]
            if lower is not None:
                conjunctions.append(lower.conjunctions)
                serials.append(lower.serials)
                self._levels[level] = None
            if sum(map(len, serials)) <= room:
                break
            level, room = level + 1, room * _GROWTH
        self._levels[level] = self._plan(np.concatenate(conjunctions), np.concatenate(serials))

    def _plan(self, conjunctions: Array, serials: Array) -> _Level:
        living = self._living()[1][serials]
        conjunctions, serials = conjunctions[living], serials[living]
        order = np.argsort(conjunctions, kind="stable")
        conjunctions, serials = conjunctions[order], serials[order]
        distinct, first = np.unique(conjunctions, return_index=True)
        return _Level(
            conjunctions, serials, Plan(self._registry, distinct), np.append(first, len(conjunctions))
        )


def _by_row(row: Array, serial: Array, rows: int, ids: Array) -> Matches:
    """One sort puts the rows together and their filters in order.

    A filter found through two of its conjunctions comes twice, and once is enough.
    """
    width = max(1, len(ids))
    pairs = row * width + serial
    if rows * width < 1 << 32:  # the usual case, and half the work to sort
        pairs = pairs.astype(np.uint32)
    pairs.sort(
        kind="stable"
    )  # files give their pairs in order: a few long runs, which a merge sort only merges
    if len(pairs):
        fresh = np.ones(len(pairs), bool)
        np.not_equal(pairs[1:], pairs[:-1], out=fresh[1:])
        pairs = pairs[fresh]
    offsets = np.searchsorted(pairs, (np.arange(rows + 1) * width).astype(pairs.dtype))
    sorted_rows = np.repeat(np.arange(rows), np.diff(offsets))
    return Matches(offsets, ids[pairs - sorted_rows * width])
