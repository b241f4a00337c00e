"""What an index asks of one batch: by row, the literals a value equals, its number, and whether patterns
match.

Each answer is worked out once per batch, once per distinct value, and shared by all plans of the index.
"""

import numpy as np
import pyarrow as pa

from qanat.events.batch import Batch
from qanat.events.filters import patterns
from qanat.events.filters.columns import Column, View, search
from qanat.events.filters.numbers import Array, Numbers
from qanat.events.filters.registry import Registry


class Lookup:
    def __init__(self, registry: Registry, batch: Batch) -> None:
        self.rows = batch.count
        self._registry, self._view = registry, View(batch, distinct=True)
        self._literals: dict[int, tuple[Array, Array] | None] = {}
        self._numbers: dict[int, Numbers | None] = {}
        self._tables: dict[int, pa.Array] = {}

    def column(self, name: int) -> Column | None:
        return self._view.column(self._registry.names[name])

    def literals(self, name: int) -> tuple[Array, ...]:
        """Two arrays by row: the text literal that the value equals, and the number or truth; -1 for none."""
        if name not in self._literals:
            column = self.column(name)
            if column is None:
                self._literals[name] = None
            else:
                as_text, as_value = self._registry.literals[name].of(column)
                codes = column.codes_or_rows()
                self._literals[name] = as_text[codes], as_value[codes]
        return self._literals[name] or ()

    def numbers(self, name: int) -> Numbers | None:
        """The number that each row's value is, or NaN."""
        if name not in self._numbers:
            column = self.column(name)
            if column is None:
                self._numbers[name] = None
            else:
                hi, lo = column.numbers
                codes = column.codes_or_rows()
                self._numbers[name] = Numbers(
                    np.append(hi, np.nan)[codes], None if lo is None else np.append(lo, 0.0)[codes]
                )
        return self._numbers[name]

    def present(self, name: int, rows: Array) -> Array:
        column = self.column(name)
        return np.zeros(len(rows), bool) if column is None else column.codes_or_rows()[rows] >= 0

    def rows_passing(self, test: int) -> Array:
        """Rows that pass a pattern, or that have the attribute."""
        name = self._registry.name_of(test)
        column = self.column(name)
        if column is None:
            return np.zeros(0, np.int64)
        pattern = self._registry.patterns.get(test)
        flags = column.present() if pattern is None else column.spread(search(column, pattern))
        return np.flatnonzero(flags)

    def search(self, name: int, tests: Array, rows: Array) -> Array:
        """Whether the row's text matches the pattern of the test beside it; each value is searched once per
        pattern."""
        column = self.column(name)
        flags = np.zeros(len(rows), bool)
        if column is None:
            return flags
        codes = column.codes_or_rows()[rows]
        order = np.argsort(tests, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(tests[order])) + 1):
            pattern = self._registry.patterns[int(tests[group[0]])]
            if column.size <= len(group):
                flags[group] = np.append(search(column, pattern), False)[codes[group]]
            else:  # few of many values: search these alone
                group = group[codes[group] >= 0]
                values, where = np.unique(codes[group], return_inverse=True)
                texts = self._table(name, column).take(pa.array(values))
                found = patterns.search(texts, pattern).fill_null(False)
                flags[group] = found.to_numpy(zero_copy_only=False)[where]
        return flags

    def _table(self, name: int, column: Column) -> pa.Array:
        """All values of the column's table as text, null where they are none."""
        if name not in self._tables:
            pieces, at = [], 0
            for start, text in column.texts:
                pieces += [pa.nulls(start - at, pa.string()), text]
                at = start + len(text)
            pieces.append(pa.nulls(column.size - at, pa.string()))
            self._tables[name] = pa.concat_arrays(pieces)
        return self._tables[name]
