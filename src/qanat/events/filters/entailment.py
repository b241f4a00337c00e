"""One basic test from another: whenever the first holds for an event, so does the second.

Every rule here is a small theorem about the meaning of values (docs/filters.md); its reason stands beside it.
"""

from typing import TypeAlias

from qanat.events.filters.model import Among, Between, Exists, Literal, Number, Regex, Term, Test, Text, Truth
from qanat.events.filters.numerals import read
from qanat.events.filters.patterns import found

Fact: TypeAlias = Term | tuple[bytes, bool]
"""A term, or (key, negated): the event has this key, which is not UTF-8 so that no literal can name it."""

_NUMERIC = frozenset({"@seq", "@time", "@size"})


def follows(fact: Fact, goal: Fact) -> bool:
    """Whenever the fact holds, the goal does.

    From `not t` follows `not u` exactly when t follows from u. From `not t` no positive goal is concluded.
    """
    if fact == goal:
        return True
    if not isinstance(fact, Term) or not isinstance(goal, Term):
        return _follows_of_bytes(fact, goal)
    if fact.negated:
        return goal.negated and follows(Term(goal.test), Term(fact.test))
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


def _follows_of_bytes(fact: Fact, goal: Fact) -> bool:
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
            # A number in the interval differs from each value: also from text that spells a number outside
            # it.
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
