"""A hunt: one GC event's predicate on its way through the events before it."""

from dataclasses import dataclass

from qanat.events.filters import Context, Filter
from qanat.events.filters.model import Conjunction, OlderThan, Term


@dataclass(slots=True)
class Hunt:
    """Where the hunt is: every event before `next` was looked at, or is known not to match."""

    predicate: Filter
    context: Context
    next: int = 1

    def older_than_us(self) -> int | None:
        """The time before which age alone suffices for a match; None if it never does."""
        cutoffs = [self._cutoff_us(c) for c in self.predicate.conjunctions if len(c) == 1]
        return max((cutoff for cutoff in cutoffs if cutoff is not None), default=None)

    def matches_before_us(self) -> int | None:
        """The time before which every match was published; None if there is no such bound."""
        cutoffs = [self._cutoff_us(conjunction) for conjunction in self.predicate.conjunctions]
        return (
            None
            if None in cutoffs
            else max((cutoff for cutoff in cutoffs if cutoff is not None), default=None)
        )

    def _cutoff_us(self, conjunction: Conjunction) -> int | None:
        ages = [
            t.test.age_us
            for t in conjunction
            if isinstance(t, Term) and isinstance(t.test, OlderThan) and not t.negated
        ]
        return self.context.time_us - max(ages) if ages else None
