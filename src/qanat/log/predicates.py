"""The predicates of GC events as they are published: checked once, and remembered as long as there is
room."""

import re

import numpy as np
import pyarrow as pa

from qanat.events.batch import Batch, Kind
from qanat.events.filters import Filter, FilterError
from qanat.events.filters.known import KnownFilters
from qanat.events.filters.model import SameKey, Term
from qanat.events.tombstones import predicates
from qanat.log.errors import NotForThisLog

SAME_KEY = Filter([[Term(SameKey())]])
known_predicates = KnownFilters(1 << 20)
_MAY_NEED_NO_HUNT = re.compile(r"upto|keep|older|same|all", re.IGNORECASE)


def given(batch: Batch) -> list[str]:
    """The different predicates of what is published, unless they were checked."""
    kinds = batch.kinds
    if batch.checked or kinds is None or not (kinds == Kind.GC).any():
        return []
    texts, collecting = predicates(batch), pa.array(np.flatnonzero(kinds == Kind.GC))
    if texts is None or texts.take(collecting).null_count:
        raise NotForThisLog(
            "a GC event carries its predicate as text in the attribute '@gc'; one here has none"
        )
    found: list[str] = texts.take(collecting).unique().to_pylist()
    return found


def check(texts: list[str]) -> None:
    """Raises `NotForThisLog` at one that does not parse. For any thread: to parse one takes some 60 µs, and 2
    µs a byte."""
    for text in texts:
        try:
            known_predicates.parse(text)
        except FilterError as error:
            raise NotForThisLog(f"the predicate of a GC event does not parse: {error}") from error


def may_need_no_hunt(text: str) -> bool:
    """Whether it may be one that is done without a hunt: a prefix, or `same key`."""
    return _MAY_NEED_NO_HUNT.search(text) is not None
