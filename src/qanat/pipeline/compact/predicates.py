"""What a GC event's predicate asks for: a prefix, everything of its key, or matches that must be looked for.

The same division as the log's collector makes (`log.collector`), for many GC events of one predicate at a
time.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from qanat.events.encode import Array
from qanat.events.filters import Filter, FilterError, parse
from qanat.events.filters.model import Conjunction, KeepLast, OlderThan, SameKey, Term, UpTo
from qanat.log.predicates import SAME_KEY

SAME_KEY_TEXT = str(SAME_KEY)
SEQ_MAX = (1 << 48) - 1
"""The highest sequence number that is collected up to; at a million events a second it is reached after nine
years."""
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Predicate:
    """One predicate, whoever carries it."""

    filter: Filter

    @property
    def same_key(self) -> bool:
        """Exactly `same key`: found through keys alone."""
        return self.filter == SAME_KEY

    @cached_property
    def hunted(self) -> bool:
        """Whether any alternative is more than a prefix: then matches are looked for, event by event."""
        return not self.same_key and any(_prefix_terms(c) is None for c in self.filter.conjunctions)

    def prefix(self, seqs: Array) -> Array:
        """For GC events of this predicate with these numbers: up to where each collects everything; 0 for
        none."""
        bound = np.zeros(len(seqs), np.int64)
        for conjunction in self.filter.conjunctions:
            terms = _prefix_terms(conjunction)
            if terms is not None:
                upto, keep = terms
                bound = np.maximum(bound, np.minimum(np.minimum(seqs - 1, upto), seqs - keep))
        return bound

    @cached_property
    def age_us(self) -> int | None:
        """The least age that suffices for a match; None if age alone never does."""
        ages = [_age_us(c) for c in self.filter.conjunctions if len(c) == 1]
        return min((age for age in ages if age is not None), default=None)

    @cached_property
    def contextual(self) -> tuple[Term, ...]:
        """The terms that speak of the GC event."""
        return tuple(term for c in self.filter.conjunctions for term in c if is_contextual(term))

    @cached_property
    def monotone(self) -> bool:
        """Whether a later GC event of this predicate, no older and of the same key, matches all that an
        earlier one does."""
        return not any(term.negated for term in self.contextual)

    @property
    def needs_time(self) -> bool:
        return any(isinstance(term.test, OlderThan) for term in self.contextual)

    @property
    def needs_key(self) -> bool:
        return any(isinstance(term.test, SameKey) for term in self.contextual)


def is_contextual(term: Term) -> bool:
    return isinstance(term.test, SameKey | KeepLast | OlderThan)


def is_keyed(conjunction: Conjunction) -> bool:
    """Whether it matches only events of its GC event's key."""
    return Term(SameKey()) in conjunction


def _prefix_terms(conjunction: Conjunction) -> tuple[int, int] | None:
    """(upto, keep last) of a conjunction of prefix tests alone; None for any other."""
    upto, keep = _LONG_MAX, 0
    for term in conjunction:
        match term:
            case Term(UpTo(seq), False):
                upto = min(upto, seq)
            case Term(KeepLast(count), False):
                keep = max(keep, min(count, _LONG_MAX))
            case _:
                return None
    return upto, keep


def _age_us(conjunction: Conjunction) -> int | None:
    ages = [t.test.age_us for t in conjunction if isinstance(t.test, OlderThan) and not t.negated]
    return max(ages, default=None)


@lru_cache(maxsize=65_536)
def read(text: str) -> Predicate | None:
    """The predicate; None if the text is none: such a GC event collects nothing, and is kept."""
    try:
        return Predicate(parse(text))
    except FilterError:
        return None
