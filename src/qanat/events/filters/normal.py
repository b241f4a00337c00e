"""Unfolds nested and, or, not to an OR of ANDs, within the limit on its size.

Negations are pushed down to the basic tests first (De Morgan), so `not` of a group costs what the group
with `and` and `or` exchanged would. Duplicates and contradictions are dropped at each step.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from qanat.events.filters.model import (
    Filter,
    Term,
    Test,
    too_many_conjunctions,
)
from qanat.events.filters.words import MAX_CONJUNCTIONS, MAX_TEXT_BYTES

_MAX_TERMS = MAX_TEXT_BYTES // 4  # no printed term is shorter than four bytes with its joint


@dataclass(frozen=True, slots=True)
class Group:
    """Parts joined by `and` or `or`; no parts and `and` is `all`."""

    joint: str
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Negation:
    part: "Node"


Node: TypeAlias = Group | Negation | Test
_Sum: TypeAlias = dict[frozenset[Term], None]  # a dict for its order: the same text fails in the same way


def unfold(node: Node) -> Filter:
    """The filter; raises `FilterError` when it would grow beyond the limits."""
    return Filter(_sum(node, False))


def _sum(node: Node, negated: bool) -> _Sum:
    # No class patterns: the pairs that CPython makes for them stay in its list of free tuples, and each pins
    # a MiB of what a long filter took.
    if isinstance(node, Negation):
        return _sum(node.part, not negated)
    if isinstance(node, Group):
        sums = [_sum(part, negated) for part in node.parts]
        return _either(sums) if (node.joint == "or") != negated else _both(sums)
    return {frozenset((Term(node, negated),)): None}


def _either(sums: Iterable[_Sum]) -> _Sum:
    result: _Sum = {}
    for part in sums:
        result.update(part)
    return _bounded(result)


def _both(sums: Iterable[_Sum]) -> _Sum:
    result: _Sum = {frozenset(): None}
    for part in sums:
        if len(result) * len(part) > MAX_CONJUNCTIONS:
            raise too_many_conjunctions()
        joined = (left | right for left in result for right in part)
        result = _bounded({terms: None for terms in joined if not _contradicts(terms)})
    return result


def _contradicts(terms: frozenset[Term]) -> bool:
    return any(term.negated and Term(term.test) in terms for term in terms)


def _bounded(result: _Sum) -> _Sum:
    if len(result) > MAX_CONJUNCTIONS or sum(map(len, result)) > _MAX_TERMS:
        raise too_many_conjunctions()
    return result
