"""The paper's implication rule, proved conservatively (Sprinkler §2.1).

A garbage collection event g may collect another one, g', only if ∀e: e ≺ g' ⇒ (g'.P(e) ⇒ g.P(e)): what g'
collected stays collected when g' itself is gone. `implies` answers True only when it has a proof; False
means "not proved". The proof is built from three steps, each sound on its own:

1. Contextual tests become plain facts once their event is known: `keep last n` is seq ≤ its seq - n, `older
   than a` is time ≤ its time - a - 1 (times are whole), `same key` is the key's bytes. That e ≺ g' is the
   fact
   seq ≤ seq(g') - 1, added to every conjunction of g'.
2. An OR implies another if each of its conjunctions implies some conjunction of the other; `k in (a, b)` may
be
   split into `k = a` and `k = b` for that.
3. An AND implies another if each term of the other follows from one of its terms (`entailment.follows`), or
if it can match
   nothing. Intervals of one name are intersected before that.
"""

from typing import TypeAlias

from qanat.events.filters.columnar import Context
from qanat.events.filters.entailment import Fact, follows
from qanat.events.filters.errors import ContextError
from qanat.events.filters.model import (
    Among,
    Between,
    Conjunction,
    Exists,
    Filter,
    KeepLast,
    OlderThan,
    Regex,
    SameKey,
    Term,
    Test,
    Text,
    UpTo,
    between,
)

_ALWAYS = frozenset({"@seq", "@time", "@kind", "@size"})  # columns that every event has

MAX_STEPS = 50_000  # comparisons of two values in one proof, about a microsecond each; beyond it: not proved

# A dict for its order: where the budget ends a search, it ends it at the same place in every process.
_Facts: TypeAlias = dict[Fact, None]


def implies(f: Filter, context_f: Context | None, g: Filter, context_g: Context | None) -> bool:
    """Whether every event before f's garbage collection event that f matches is certainly matched by g.

    Without `context_f`, every event whatever is meant. A contextual filter needs its context.
    """
    for part, context in ((f, context_f), (g, context_g)):
        if part.contextual and context is None:
            raise ContextError(f"'{part}' speaks of a garbage collection event, and none is given")
    wanted = [facts for c in g.conjunctions if (facts := _facts(c, context_g)) is not None]
    given = [facts for c in f.conjunctions if (facts := _facts(c, context_f)) is not None]
    same = {frozenset(goals) for goals in wanted}  # equal alternatives, the plain case, cost no step
    proof = _Proof()
    try:
        return all(
            _implied(proof, facts, context_f, wanted) for facts in given if frozenset(facts) not in same
        )
    except _GivenUp:
        return False


def _implied(proof: "_Proof", facts: _Facts, context: Context | None, wanted: list[_Facts]) -> bool:
    if context is not None:
        before = _seq_at_most(context.seq - 1)
        if before is None:  # nothing comes before it
            return True
        facts = {**facts, Term(before): None}
    return proof.implies_some(facts, wanted, split=True)


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
    """`name` ≤ bound, where every event has one from `lowest` to `highest`; None when that holds for no
    event."""
    if bound < lowest:
        return None
    return Exists(name) if bound >= highest else between(name, None, bound)


def _seq_at_most(bound: int) -> Test | None:
    return _at_most("@seq", 0, bound, (1 << 64) - 1)


class _GivenUp(Exception):
    """The search has used up its budget."""


class _Proof:
    """The search for one proof, with a budget: two filters near the limits would else take minutes."""

    def __init__(self) -> None:
        self.steps = 0

    def implies_some(self, facts: _Facts, wanted: list[_Facts], split: bool) -> bool:
        self.spend(len(wanted))
        if any(goals.keys() <= facts.keys() for goals in wanted):
            return True
        facts = _with_intersections(facts)
        if any(all(self.implied(facts, goal) for goal in goals) for goals in wanted) or self.impossible(
            facts
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

    def implied(self, facts: _Facts, goal: Fact) -> bool:
        if goal in facts:
            return True
        if isinstance(goal, Term) and not goal.negated and isinstance(goal.test, Exists):
            if goal.test.name in _ALWAYS:
                return True
        return any(self.follows(fact, goal) for fact in facts)

    def follows(self, fact: Fact, goal: Fact) -> bool:
        self.spend(_cost(fact) + _cost(goal))
        if _is_sublist(fact, goal):
            return True
        self.spend(_cost(fact) * _cost(goal))
        return follows(fact, goal)

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise _GivenUp


def _is_sublist(fact: Fact, goal: Fact) -> bool:
    """`k in (a, b)` to `k in (a, b, c)`, without comparing each with each."""
    match fact, goal:
        case Term(Among(name, values), False), Term(Among(goal_name, goal_values), False):
            return name == goal_name and set(values) <= set(goal_values)
        case _:
            return False


def _cost(fact: Fact) -> int:
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


def _opposite(fact: Fact) -> Fact:
    return Term(fact.test, not fact.negated) if isinstance(fact, Term) else (fact[0], not fact[1])
