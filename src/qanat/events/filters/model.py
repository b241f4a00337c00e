"""What a filter is: an OR of ANDs of basic tests, each perhaps negated (Wormhole §3.2, Sprinkler §2.1).

Every value here is frozen and normal: a filter's conjunctions, a conjunction's terms and a list's values are
sorted by their printed form and hold no duplicates, so two filters that differ only in order are equal,
and the printed form identifies the filter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from qanat.events.filters.errors import FilterError
from qanat.events.filters.numerals import normal
from qanat.events.filters.pattern_size import pattern_size
from qanat.events.filters.patterns import refusal
from qanat.events.filters.words import (
    MAX_CONJUNCTIONS,
    MAX_PATTERN_BYTES,
    MAX_PATTERNS_SIZE,
    MAX_TEXT_BYTES,
    UNITS_US,
    check_count,
    check_encodable,
    check_name,
    print_name,
    quote,
)


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted literal or bare word: equal to text of exactly these characters, and to nothing else."""

    value: str

    def __post_init__(self) -> None:
        check_encodable(self.value)

    def __str__(self) -> str:
        return quote(self.value)


@dataclass(frozen=True, slots=True)
class Number:
    """An unquoted number: equal to any number of this value, and to text that spells one."""

    value: int | float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", normal(self.value))

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Truth:
    """Unquoted true or false: equal to that boolean, and to the text that spells it."""

    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


Literal: TypeAlias = Text | Number | Truth


@dataclass(frozen=True, slots=True)
class Exists:
    """The event has this attribute, whatever its value."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    def __str__(self) -> str:
        return f"exists {print_name(self.name)}"


@dataclass(frozen=True, slots=True)
class Among:
    """`k = v`, and `k in (a, b)`."""

    name: str
    values: tuple[Literal, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.values:
            raise FilterError(f"the list of values for {print_name(self.name)} is empty")
        object.__setattr__(self, "values", tuple(sorted(set(self.values), key=str)))

    def __str__(self) -> str:
        name = print_name(self.name)
        if len(self.values) == 1:
            return f"{name} = {self.values[0]}"
        return f"{name} in ({', '.join(map(str, self.values))})"


@dataclass(frozen=True, slots=True)
class Between:
    """`k in 1..5000`: numbers only, both ends belong to it, None is an open end. Use `between` to make
    one."""

    name: str
    low: int | float | None
    high: int | float | None

    def __post_init__(self) -> None:
        check_name(self.name)
        ends = [end for end in (self.low, self.high) if end is not None]
        if not ends:
            raise FilterError("an interval has at least one end")
        if len(ends) == 2 and ends[0] > ends[1]:
            raise FilterError(f"the interval {ends[0]!r}..{ends[1]!r} is empty")
        if ends[0] == ends[-1] and len(ends) == 2:
            raise FilterError("an interval of one number is an equality: make it with between()")

    def __str__(self) -> str:
        low, high = ("" if end is None else repr(end) for end in (self.low, self.high))
        return f"{print_name(self.name)} in {low}..{high}"


@dataclass(frozen=True, slots=True)
class Regex:
    """`k ~ 'regex'`: the pattern (RE2 syntax) is found somewhere in the text."""

    name: str
    pattern: str

    def __post_init__(self) -> None:
        check_name(self.name)
        check_encodable(self.pattern)
        if len(self.pattern.encode()) > MAX_PATTERN_BYTES:
            raise FilterError(f"a pattern has at most {MAX_PATTERN_BYTES} bytes")
        if (
            size := pattern_size(self.pattern)
        ) > MAX_PATTERNS_SIZE:  # before it is compiled, which costs as much
            raise too_large_patterns("the pattern unfolds", size)
        why = refusal(self.pattern)
        if why is not None:
            raise FilterError(f"the pattern is not a regular expression: {why}")

    def __str__(self) -> str:
        return f"{print_name(self.name)} ~ {quote(self.pattern)}"


@dataclass(frozen=True, slots=True)
class UpTo:
    """Sequence numbers up to and including this one."""

    seq: int

    def __post_init__(self) -> None:
        check_count(self.seq)

    def __str__(self) -> str:
        return f"upto {self.seq}"


@dataclass(frozen=True, slots=True)
class SameKey:
    """The event has the garbage collection event's key, and that key is not empty."""

    def __str__(self) -> str:
        return "same key"


@dataclass(frozen=True, slots=True)
class KeepLast:
    """All but the last `count` sequence numbers up to the garbage collection event's: seq ≤ its seq -
    count."""

    count: int

    def __post_init__(self) -> None:
        check_count(self.count)

    def __str__(self) -> str:
        return f"keep last {self.count}"


@dataclass(frozen=True, slots=True)
class OlderThan:
    """Published more than this long before the garbage collection event."""

    age_us: int

    def __post_init__(self) -> None:
        check_count(self.age_us)

    def __str__(self) -> str:
        unit = next(u for u, us in UNITS_US.items() if self.age_us % us == 0)
        return f"older than {self.age_us // UNITS_US[unit]}{unit}"


Named: TypeAlias = Exists | Among | Between | Regex
Test: TypeAlias = Named | UpTo | SameKey | KeepLast | OlderThan


def between(name: str, low: int | float | None, high: int | float | None) -> Among | Between:
    """An interval test in its one form: an interval of a single number is an equality."""
    low = None if low is None else normal(low)
    high = None if high is None else normal(high)
    if low is not None and low == high:
        return Among(name, (Number(low),))
    return Between(name, low, high)


@dataclass(frozen=True, slots=True)
class Term:
    test: Test
    negated: bool = False

    def __str__(self) -> str:
        return f"not {self.test}" if self.negated else str(self.test)


Conjunction: TypeAlias = tuple[Term, ...]


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Filter:
    """An OR of ANDs of terms in normal form; `all` is one empty conjunction, `not all` is none.

    A conjunction that holds a test and its negation is dropped, for it matches nothing. Equality and hash are
    those of the printed form, which `parse` reads back to an equal filter.
    """

    conjunctions: tuple[Conjunction, ...]
    text: str = field(repr=False)
    patterns_size: int = field(repr=False)
    """Of all its patterns (`pattern_size`)."""

    def __init__(self, conjunctions: Iterable[Iterable[Term]]) -> None:
        sets = {frozenset(terms) for terms in conjunctions}
        possible = [terms for terms in sets if not any(t.negated and Term(t.test) in terms for t in terms)]
        if frozenset() in sets:
            possible = [frozenset()]
        if len(possible) > MAX_CONJUNCTIONS:
            raise too_many_conjunctions()
        printed = sorted(_print_conjunction(terms) for terms in possible)
        text = " or ".join(p[0] for p in printed) if printed else "not all"
        if len(text.encode()) > MAX_TEXT_BYTES:
            raise FilterError(f"the filter's normal form is longer than {MAX_TEXT_BYTES} bytes")
        patterns = {term.test.pattern for terms in possible for term in terms if isinstance(term.test, Regex)}
        size = sum(map(pattern_size, patterns))
        if size > MAX_PATTERNS_SIZE:
            raise too_large_patterns("the filter's patterns unfold", size)
        object.__setattr__(self, "patterns_size", size)
        object.__setattr__(self, "conjunctions", tuple(p[1] for p in printed))
        object.__setattr__(self, "text", text)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        return Filter, (self.conjunctions,)

    @property
    def tests(self) -> frozenset[Test]:
        return frozenset(term.test for conjunction in self.conjunctions for term in conjunction)

    @property
    def names(self) -> frozenset[str]:
        """Attributes and built-in columns that it tests by name."""
        return frozenset(t.name for t in self.tests if isinstance(t, Exists | Among | Between | Regex))

    @property
    def contextual(self) -> bool:
        """Whether it speaks of its garbage collection event, and so cannot be a subscription."""
        return any(isinstance(test, SameKey | KeepLast | OlderThan) for test in self.tests)


def too_many_conjunctions() -> FilterError:
    return FilterError(
        f"the filter unfolds to too much (at most {MAX_CONJUNCTIONS} alternatives); split it into several"
    )


def too_large_patterns(what: str, size: int) -> FilterError:
    return FilterError(
        f"{what} to about {size} instructions (at most {MAX_PATTERNS_SIZE} in one filter); a repetition such"
        " as {300} counts its part so many times, and \\pL 800: repeat less, or write [a-z]"
    )


def _print_conjunction(terms: Iterable[Term]) -> tuple[str, Conjunction]:
    ordered = sorted((str(term), i, term) for i, term in enumerate(terms))
    return " and ".join(text for text, _, _ in ordered) or "all", tuple(term for _, _, term in ordered)
