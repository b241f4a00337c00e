"""How a chain changes: one thing at a time, and never to somebody who lost what counts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from qanat.protocols.chain import Configuration, Member, Registration
from qanat.protocols.chain import configuration as rules
from qanat.protocols.chain.configuration import CaughtUp, Failed
from qanat.protocols.chain.eras import Eras
from qanat.protocols.chain.messages import Claim, Era

A, B, C, D = (Member(name, number) for number, name in enumerate("abcd", 1))


def registered(*members: Member, kept: bool = True) -> list[Registration]:
    return [Registration(member, kept) for member in members]


def decide(
    now: Configuration, registered: list[Registration], wanted: int, reports: Sequence[CaughtUp | Failed] = ()
) -> Configuration | None:
    new = rules.decide(now, registered, wanted, reports)
    return None if new is None else msgspec.structs.replace(new, before=(), lineage=())


def test_a_chain_of_the_wanted_length_stays() -> None:
    assert decide(Configuration(3, (A, B)), registered(A, B, C), 2) is None


@pytest.mark.parametrize("gone", [A, B, C])
def test_who_is_gone_is_removed_wherever_it_was(gone: Member) -> None:
    left = tuple(member for member in (A, B, C) if member != gone)
    new = decide(Configuration(3, (A, B, C)), registered(*left), 3)
    assert new == Configuration(4, left)


def test_a_new_life_of_a_replica_is_another_member() -> None:
    again = Member("a", 9)
    new = decide(Configuration(3, (A, B)), registered(again, A, B), 2)
    assert new == Configuration(4, (B,))
    assert new is not None
    assert decide(new, registered(again, A, B), 2) == Configuration(5, (B,), again)


def test_who_joins_is_a_member_only_by_the_token_of_this_epoch() -> None:
    now = Configuration(5, (B,), C)
    assert decide(now, registered(B, C), 2) is None
    assert decide(now, registered(B, C), 2, [CaughtUp(4, C)]) is None
    assert decide(now, registered(B, C), 2, [CaughtUp(5, C)]) == Configuration(6, (B, C))


def test_who_joins_and_dies_is_replaced_by_another() -> None:
    new = decide(Configuration(5, (B,), C), registered(B, D), 2)
    assert new == Configuration(6, (B,))
    assert new is not None
    assert decide(new, registered(B, D), 2) == Configuration(7, (B,), D)


def test_a_tail_that_failed_but_lives_makes_the_next_one_wary() -> None:
    new = decide(Configuration(5, (A, B)), registered(A, B), 2, [Failed(5, B)])
    assert new == Configuration(6, (A,), None, wary=True, failed=B)
    assert new is not None
    again = decide(new, registered(A, B, C), 2)
    assert again == Configuration(7, (A,), C, wary=True, failed=B)


def test_after_the_loss_of_all_the_first_goes_on_that_kept_its_disk() -> None:
    now = Configuration(5, (A, B))
    new_a, new_b = Member("a", 8), Member("b", 9)
    assert decide(now, registered(C, new_a, kept=False), 2) is None
    assert decide(now, registered(C), 2) is None
    new = decide(now, [*registered(new_a, kept=False), *registered(new_b)], 2)
    assert new == Configuration(6, (new_b,))


def test_who_was_reported_by_one_that_is_gone_goes_on() -> None:
    """It lives, has all that counts and perhaps a lease: to begin again without it would be to have two
    tails."""
    again = Member("a", 9)
    new = decide(Configuration(5, (A, B)), registered(again, B), 2, [Failed(5, B)])
    assert new == Configuration(6, (B,), failed=B)


def test_a_tail_that_was_removed_alive_is_waited_for_even_if_all_others_are_lost() -> None:
    again = Member("a", 9)
    removed = decide(Configuration(5, (A, B)), registered(A, B), 2, [Failed(5, B)])
    assert removed is not None
    assert decide(removed, registered(again, B), 2) == Configuration(7, (again,), wary=True, failed=B)


def test_an_epoch_that_nobody_took_up_leaves_the_one_before_in_force() -> None:
    """The tail restarts while the head's session outlives the head: the tail has all, and goes on."""
    again = Member("b", 9)
    confirmed = Configuration(5, (A, B), confirmed=True)
    shrunk = rules.decide(confirmed, registered(A, again), 1)
    assert shrunk == Configuration(6, (A,), before=(A, B), lineage=((5, 0),))
    assert shrunk is not None
    assert decide(shrunk, registered(again), 1) == Configuration(7, (again,))
    taken_up = msgspec.structs.replace(shrunk, confirmed=True)
    assert rules.decide(taken_up, registered(again), 1) is None


def test_a_chain_that_is_too_long_loses_the_last_by_name_once_it_is_confirmed() -> None:
    ten = Member("a-10", 7)
    names = (Member("a-9", 1), ten, Member("a-2", 3))
    assert decide(Configuration(5, names), registered(*names), 2) is None
    confirmed = Configuration(5, names, confirmed=True)
    assert decide(confirmed, registered(*names), 2) == Configuration(6, (names[0], names[2]))
    assert rules.decide(confirmed, registered(*names), None) is None


def test_a_tail_that_is_to_go_may_hold_a_lease_still() -> None:
    now = Configuration(5, (A, B), confirmed=True)
    assert decide(now, registered(A, B), 1) == Configuration(6, (A,), wary=True)
    swapped = Configuration(5, (B, A), confirmed=True)
    assert decide(swapped, registered(A, B), 1) == Configuration(6, (A,))


def test_nobody_joins_a_chain_that_is_long_enough_meanwhile() -> None:
    now = Configuration(5, (A, B), C)
    assert decide(now, registered(A, B, C), 2, [CaughtUp(5, C)]) == Configuration(6, (A, B))


def test_neighbours_follow_from_the_order() -> None:
    chain = Configuration(1, (A, B), C)
    assert (chain.leader(A), chain.leader(B), chain.leader(C)) == (None, A, B)
    assert (chain.follower(A), chain.follower(B), chain.follower(C)) == (B, C, None)


def test_histories_agree_where_one_head_numbered_the_last_event_of_both() -> None:
    eras = Eras(10, (Era(1, "a", ()), Era(4, "b", ((7, 6),))))
    assert eras.of(7, 5) == 1
    assert eras.of(7, 6) == 4
    assert eras.of(8, 1) == 4
    assert eras.agrees(Claim(7, 5, 1), 9)
    assert eras.agrees(Claim(7, 0, 0), 9)
    assert not eras.agrees(Claim(7, 6, 1), 9)
    assert not eras.agrees(Claim(7, 10, 4), 9)


def test_eras_beyond_the_bound_are_forgotten_and_claims_of_them_refused() -> None:
    eras = Eras(2, (Era(1, "a", ()), Era(2, "b", ((7, 3),)), Era(3, "c", ((7, 5),))))
    assert [era.epoch for era in eras.all] == [2, 3]
    assert not eras.agrees(Claim(7, 2, 1), 9)
