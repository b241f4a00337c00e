"""The promise of garbage collection, checked from outside: plain Python, one event at a time, nothing shared
with the log.

"For each event e that is published for stream s, each client is either delivered e or a tombstone event for e
followed by a matching garbage collection event" (Sprinkler, section 2.1). A reader may start anywhere; what
it was delivered is checked against what was published.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from qanat.events.batch import Batch, Kind
from qanat.events.errors import InvariantError
from qanat.events.filters import Filter, parse
from qanat.events.filters.model import Among, Exists, KeepLast, OlderThan, SameKey, Term, UpTo
from qanat.events.tombstones import GC_ATTRIBUTE
from qanat.log.config import Policy


@dataclass(frozen=True)
class Event:
    """One published event."""

    seq: int
    payload: bytes = b""
    key: bytes = b""
    time_us: int = 0
    kind: Kind = Kind.DATA
    attributes: dict[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Grave:
    """One delivered tombstone."""

    first: int
    last: int


def rows_of(batches: Iterable[Batch]) -> list[Event | Grave]:
    """What a reader of these batches is delivered, row by row."""
    rows: list[Event | Grave] = []
    for batch in batches:
        seqs, ranges, times = batch.seqs().tolist(), batch.ranges, batch.times().tolist()
        payloads, keys, kinds = batch.payloads().to_pylist(), batch.keys(), batch.kinds
        names = [b""] * len(seqs) if keys is None else keys.to_pylist()
        for i, seq in enumerate(seqs):
            kind = Kind.DATA if kinds is None else Kind(int(kinds[i]))
            if kind is Kind.TOMBSTONE:
                rows.append(Grave(seq - (1 if ranges is None else int(ranges[i])) + 1, seq))
            else:
                attributes: dict[str, object] = dict(batch.attribute_row(i))
                rows.append(Event(seq, payloads[i], names[i], times[i], kind, attributes))
    return rows


def collects(g: Event, e: Event, policy: Policy) -> bool:
    """Whether g, by its own predicate or by the stream's policy, collects e."""
    if e.seq >= g.seq:
        return False
    if policy.by_key and g.key and g.key == e.key:
        return True
    if policy.keep_last is not None and e.seq <= g.seq - policy.keep_last:
        return True
    if policy.age_ms is not None and e.time_us < g.time_us - policy.age_ms * 1000:
        return True
    if g.kind is not Kind.GC:
        return False
    return matches(parse(str(g.attributes[GC_ATTRIBUTE])), g, e)


def matches(predicate: Filter, g: Event, e: Event) -> bool:
    """The predicate of g over e, without regard to their order; knows the tests that the checks use."""
    return any(all(_passes(term, g, e) for term in terms) for terms in predicate.conjunctions)


def _passes(term: Term, g: Event, e: Event) -> bool:
    match term.test:
        case UpTo(seq):
            passed = e.seq <= seq
        case SameKey():
            passed = bool(g.key) and e.key == g.key
        case KeepLast(count):
            passed = e.seq <= g.seq - count
        case OlderThan(age_us):
            passed = e.time_us < g.time_us - age_us
        case Exists(name):
            passed = name in e.attributes
        case Among(name, values):
            passed = name in e.attributes and any(value.value == e.attributes[name] for value in values)
        case other:
            raise InvariantError(f"the checker does not know {other}")
    return passed != term.negated


def check_history(
    published: Sequence[Event],
    delivered: Sequence[Event | Grave],
    policy: Policy | None = None,
    *,
    start: int = 1,
) -> None:
    """Raises `InvariantError` unless a reader from `start` to the end was delivered what it must be.

    `published` is every event of the stream, in order. The first row may begin before `start`.
    """
    policy = policy or Policy()
    expected = None
    for row in delivered:
        first, last = (row.first, row.last) if isinstance(row, Grave) else (row.seq, row.seq)
        if expected is None and not first <= start:
            raise InvariantError(f"asked from {start}, the first row is at {first}")
        if expected is not None and first != expected:
            raise InvariantError(f"after {expected - 1} comes {first}: a hole, a duplicate, or out of order")
        if isinstance(row, Event) and row != published[row.seq - 1]:
            raise InvariantError(f"{row} was delivered, but {published[row.seq - 1]} was published")
        expected = last + 1
    if (start if expected is None else expected) != len(published) + 1:
        raise InvariantError(f"delivered up to {expected}, published up to {len(published)}")
    for i, row in enumerate(delivered):
        if isinstance(row, Grave):
            later = [other for other in delivered[i + 1 :] if isinstance(other, Event)]
            for seq in range(max(row.first, start), row.last + 1):
                if not any(collects(g, published[seq - 1], policy) for g in later):
                    raise InvariantError(
                        f"{seq} is under the tombstone {row}, but nothing after it collects it"
                    )


def check_merged(delivered: Sequence[Event | Grave]) -> None:
    """Raises unless no two tombstones stand next to each other."""
    for a, b in pairwise(delivered):
        if isinstance(a, Grave) and isinstance(b, Grave):
            raise InvariantError(f"{a} and {b} should be one")
