"""The one predicate language: garbage collection, publisher-side filters and content subscriptions speak it.

`parse` reads it, `str` prints it, `evaluate` answers for one filter over a batch, `FilterIndex` for very many
filters at once, and `implies` proves that one filter matches all that another does. docs/filters.md has the
grammar.
"""

from qanat.events.filters.columnar import Context, collects, evaluate
from qanat.events.filters.errors import ContextError, FilterError
from qanat.events.filters.implication import implies
from qanat.events.filters.index import FilterIndex, Matches
from qanat.events.filters.model import Filter
from qanat.events.filters.parser import parse

__all__ = [
    "Context",
    "ContextError",
    "Filter",
    "FilterError",
    "FilterIndex",
    "Matches",
    "collects",
    "evaluate",
    "implies",
    "parse",
]
