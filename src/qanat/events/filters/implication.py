"""The paper's implication rule, proved conservatively (Sprinkler §2.1).

A garbage collection event g may collect another one, g', only if ∀e: e ≺ g' ⇒ (g'.P(e) ⇒ g.P(e)): what g'
collected stays collected when g' itself is gone. `implies` answers True only when it has a proof; False
means "not proved". The proof is built from three steps, each sound on its own:

1. Contextual tests become plain facts once their event is known: `keep last n` is seq ≤ its seq - n, `older
   than a` is time ≤ its time - a - 1 (times are whole), `same key` is the key's bytes. That e ≺ g' is the fact
   seq ≤ seq(g') - 1, added to every conjunction of g'.
2. An OR implies another if each of its conjunctions implies some conjunction of the other; `k in (a, b)` may be
   split into `k = a` and `k = b` for that.
3. An AND implies another if each term of the other follows from one of its terms (`_follows`), or if it can match
   nothing. Intervals of one name are intersected before that.
"""

from typing import TypeAlias

from qanat.events.filters.columnar import Context
from qanat.events.filters.errors import ContextError
from qanat.events.filters.model import (
    Among,
    Between,
    Conjunction,
    Exists,
    Filter,
    KeepLast,
    Literal,
    Number,
    OlderThan,
    Regex,
    SameKey,
    Term,
    Test,
    Text,
    Truth,
    UpTo,
    between,
)
from qanat.events.filters.numerals import read
from qanat.events.filters.patterns import found

_ALWAYS = frozenset({"@seq", "@time", "@kind", "@size"})  # columns that every event has
_NUMERIC = frozenset({"@seq", "@time", "@size"})

MAX_STEPS = 50_000  # comparisons of two values in one proof, about a microsecond each; beyond it: not proved

# A key that no text literal can name: SameKey with the key's bytes put in place of the context.
_Fact: TypeAlias = Term | tuple[bytes, bool]
# A dict for its order: where the budget ends a search, it ends it at the same place in every process.
_Facts: TypeAlias = dict[_Fact, None]


def implies(f: Filter, context_f: Context | None, g: Filter, context_g: Context | None) -> bool:
    """Whether every event before f's garbage collection event that f matches is certainly matched by g.

    Without `context_f`, every event whatever is meant. A contextual filter needs its context.
    """
    for part, context in ((f, context_f), (g, context_g)):
        if part.contextual and context is None:
            raise ContextError(f"'{part}' speaks of a garbage collection event, and none is given")
    wanted = [facts for c in g.conjunctions if (facts := _facts(c, context_g)) is not None]
    proof = _Proof()
    for conjunction in f.conjunctions:
        facts = _facts(conjunction, context_f)
        if facts is None:
            continue
        if context_f is not None:
            before = _seq_at_most(context_f.seq - 1)
            if before is None:
                continue
            facts[Term(before)] = None
        if not proof.implies_some(facts, wanted, split=True):
            return False
    return True


def _facts(conjunction: Conjunction, context: Context | None) -> _Facts | None:
    """Step 1; None when the conjunction matches nothing."""
    facts: _Facts = {}
    for term in conjunction:
        fact = _fact(term.test, context)
        if fact is None:  # the test holds for no event
            if not term.negated:
                return None
            continue
        facts[(fact, term.negated) if isinstance(fact, bytes) else Term(fact, term.negated)] = None
    return facts


def _fact(test: Test, context: Context | None) -> Test | bytes | None:
    match test:
        case UpTo(seq):
            return _seq_at_most(seq)
        case KeepLast(count) if context is not None:
            return _seq_at_most(context.seq - count)
        case OlderThan(age_us) if context is not None:
            return _at_most("@time", -(1 << 63), context.time_us - age_us - 1, (1 << 63) - 1)
        case SameKey() if context is not None:
            if not context.key:
                return None
            try:
                return Among("@key", (Text(context.key.decode()),))  # binary equals text of the same bytes
            except UnicodeDecodeError:
                return context.key
        case _:
            return test


def _at_most(name: str, lowest: int, bound: int, highest: int) -> Test | None:
    """`name` ≤ bound, where every event has one from `lowest` to `highest`; None when that holds for no event."""
    if bound < lowest:
        return None
    return Exists(name) if bound >= highest else between(name, None, bound)


def _seq_at_most(bound: int) -> Test | None:
    return _at_most("@seq", 0, bound, (1 << 64) - 1)


class _Proof:
    """The search for one proof, with a budget: two filters near the limits would else take minutes."""

    def __init__(self) -> None:
        self.steps = 0

    def implies_some(self, facts: _Facts, wanted: list[_Facts], split: bool) -> bool:
        facts = _with_intersections(facts)
        if self.impossible(facts) or any(
            all(self.implied(facts, goal) for goal in goals) for goals in wanted
        ):
            return True
        return split and any(
            all(
                self.implies_some({**facts, Term(Among(fact.test.name, (value,))): None}, wanted, split=False)
                for value in fact.test.values
            )
            for fact in facts
            if isinstance(fact, Term)
            and isinstance(fact.test, Among)
            and not fact.negated
            and len(fact.test.values) > 1
        )

    def impossible(self, facts: _Facts) -> bool:
        """Two facts that cannot both hold: from one follows the other's opposite."""
        return any(self.follows(fact, _opposite(other)) for fact in facts for other in facts if fact != other)

    def implied(self, facts: _Facts, goal: _Fact) -> bool:
        if goal in facts:
            return True
        if isinstance(goal, Term) and not goal.negated and isinstance(goal.test, Exists):
            if goal.test.name in _ALWAYS:
                return True
        return any(self.follows(fact, goal) for fact in facts)

    def follows(self, fact: _Fact, goal: _Fact) -> bool:
        self.steps += _cost(fact) * _cost(goal)
        return self.steps <= MAX_STEPS and _follows(fact, goal)


def _cost(fact: _Fact) -> int:
    match fact:
        case Term(Among(_, values)):
            return len(values)
        case Term(Regex()):
            return 10  # a pattern is compiled for each text
        case _:
            return 1


def _with_intersections(facts: _Facts) -> _Facts:
    """Adds to the intervals of each name what they have in common: a value must lie in all of them."""
    lows: dict[str, list[int | float]] = {}
    highs: dict[str, list[int | float]] = {}
    for fact in facts:
        if isinstance(fact, Term) and isinstance(fact.test, Between) and not fact.negated:
            name, low, high = fact.test.name, fact.test.low, fact.test.high
            lows.setdefault(name, []).extend([] if low is None else [low])
            highs.setdefault(name, []).extend([] if high is None else [high])
    added: _Facts = {}
    for name, low_ends in lows.items():
        low, high = max(low_ends, default=None), min(highs[name], default=None)
        if low is None or high is None or low <= high:
            added[Term(between(name, low, high))] = None
        else:  # no number lies in all: `exists k and not exists k` says so in the language's own terms
            added |= {Term(Exists(name)): None, Term(Exists(name), True): None}
    return facts | added


def _opposite(fact: _Fact) -> _Fact:
    return Term(fact.test, not fact.negated) if isinstance(fact, Term) else (fact[0], not fact[1])


def _follows(fact: _Fact, goal: _Fact) -> bool:
    """Step 3 for two terms: whenever the fact holds, the goal does.

    From `not t` follows `not u` exactly when t follows from u. From `not t` no positive goal is concluded.
    """
    if fact == goal:
        return True
    if not isinstance(fact, Term) or not isinstance(goal, Term):
        return _follows_of_bytes(fact, goal)
    if fact.negated:
        return goal.negated and _follows(Term(goal.test), Term(fact.test))
    t, u = fact.test, goal.test
    if getattr(t, "name", 0) != getattr(u, "name", 1):
        return False
    if isinstance(u, Exists):  # a positive test of a missing attribute is false
        return not goal.negated
    match t:
        case Among(name, values):
            # The attribute is one of the values: the goal must follow from each.
            return all(_value_follows(name, value, u, goal.negated) for value in values)
        case Between(_, low, high):
            return _interval_follows(low, high, u, goal.negated)
        case _:  # from a pattern only itself follows, from `exists` only `exists`
            return False


def _follows_of_bytes(fact: _Fact, goal: _Fact) -> bool:
    """Facts about a key that is not UTF-8: it exists, equals no literal, and matches no pattern."""
    if isinstance(goal, tuple):
        if isinstance(fact, tuple):  # from one key follows that it is no other
            return not fact[1] and goal[1] and fact[0] != goal[0]
        about_key = not fact.negated and getattr(fact.test, "name", "") == "@key"
        return goal[1] and (
            (about_key and not isinstance(fact.test, Exists)) or fact == Term(Exists("@key"), True)
        )
    if isinstance(fact, tuple) and not fact[1] and getattr(goal.test, "name", "") == "@key":
        return isinstance(goal.test, Exists) != goal.negated
    return False


def _value_follows(name: str, value: Literal, goal: Test, negated: bool) -> bool:
    """Whether an attribute equal to the literal passes the goal (or surely fails it, when negated)."""
    if isinstance(value, Text):  # exactly this text: every test of it has one answer
        return _text_passes(value.value, goal) != negated
    if isinstance(value, Number):
        # A number of this value or, outside the numeric columns, any text that spells it.
        passes = _number_passes(value.value, goal, spelled=name not in _NUMERIC)
    else:
        passes = _truth_passes(value.value, goal)
    return passes is not None and passes != negated


def _text_passes(text: str, test: Test) -> bool:
    spelled = read(text)
    match test:
        case Among(_, values):
            return any(
                w.value == text
                if isinstance(w, Text)
                else spelled is not None and w.value == spelled
                if isinstance(w, Number)
                else text == str(w)
                for w in values
            )
        case Between(_, low, high):
            return spelled is not None and _inside(spelled, low, high)
        case Regex(_, pattern):
            return found(text, pattern)
        case _:
            return True


def _number_passes(value: int | float, test: Test, spelled: bool) -> bool | None:
    """None: it depends on how the number is written."""
    match test:
        case Among(_, values):
            if any(isinstance(w, Number) and w.value == value for w in values):
                return True
            texts = [w.value for w in values if isinstance(w, Text)] if spelled else []
            return None if any(read(t) == value for t in texts) else False
        case Between(_, low, high):
            return _inside(value, low, high)
        case Regex():
            return None if spelled else False
        case _:
            return True


def _truth_passes(truth: bool, test: Test) -> bool | None:
    """The boolean, or the text that spells it; None when these differ."""
    boolean = isinstance(test, Among) and Truth(truth) in test.values
    text = _text_passes(str(Truth(truth)), test)
    return boolean if boolean == text else None


def _interval_follows(low: int | float | None, high: int | float | None, goal: Test, negated: bool) -> bool:
    match goal:
        case Between(_, goal_low, goal_high) if negated:
            return _below(high, goal_low) or _below(goal_high, low)
        case Between(_, goal_low, goal_high):
            return (goal_low is None or (low is not None and goal_low <= low)) and (
                goal_high is None or (high is not None and high <= goal_high)
            )
        case Among(_, values) if negated:
            # A number in the interval differs from each value: also from text that spells a number outside it.
            return not any(_inside(v, low, high) for v in map(_number_of, values) if v is not None)
        case _:
            return False


def _number_of(value: Literal) -> int | float | None:
    if isinstance(value, Number):
        return value.value
    return read(value.value) if isinstance(value, Text) else None


def _inside(value: int | float, low: int | float | None, high: int | float | None) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def _below(high: int | float | None, low: int | float | None) -> bool:
    return high is not None and low is not None and high < low
