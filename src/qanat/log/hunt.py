"""A hunt: one GC event's predicate on its way through the events before it."""

from dataclasses import dataclass

from qanat.events.filters import Context, Filter


@dataclass(slots=True)
class Hunt:
    """Where the hunt is: every event before `next` was looked at, or is known not to match."""

    predicate: Filter
    context: Context
    next: int = 1
