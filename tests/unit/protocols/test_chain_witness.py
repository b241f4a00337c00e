"""When a refused dial says that a process is dead: the news may be older than the process."""

from __future__ import annotations

from qanat.kernel import Address
from qanat.protocols.chain.configuration import Member
from qanat.protocols.chain.witness import Witness

A = Address("eu/proxy-1")
FIRST, SECOND, OTHER = Member(A, 1), Member(A, 2), Member("eu/proxy-2", 3)


def test_the_second_refusal_in_a_row_says_that_a_process_is_dead() -> None:
    witness = Witness()
    assert not witness.refused(A, [FIRST, OTHER])
    assert witness.still([FIRST, OTHER]) == []
    assert witness.refused(A, [FIRST, OTHER])
    assert witness.still([FIRST, OTHER]) == [FIRST]


def test_a_refusal_whose_news_came_late_says_nothing_of_the_process_that_began_meanwhile() -> None:
    witness = Witness()
    witness.refused(A, [FIRST])
    assert not witness.refused(A, [FIRST, SECOND])
    assert witness.still([FIRST, SECOND]) == []
    assert witness.refused(A, [FIRST, SECOND])
    assert witness.still([FIRST, SECOND]) == [FIRST, SECOND]


def test_the_dead_are_told_of_once_and_forgotten_when_they_are_gone() -> None:
    witness = Witness()
    witness.refused(A, [FIRST])
    assert witness.refused(A, [FIRST])
    assert not witness.refused(A, [FIRST])
    assert witness.still([OTHER]) == []
    assert not witness.dead


def test_an_address_that_nobody_known_has_is_nobodys_death() -> None:
    witness = Witness()
    assert not witness.refused(A, [OTHER])
    assert not witness.refused(A, [OTHER])
    assert witness.still([OTHER]) == []
