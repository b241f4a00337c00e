"""What replicas claim beside what lies in the coordinator: who is asked, who is waited for, and who goes
on."""

from __future__ import annotations

import msgspec
import pytest

from qanat.protocols.chain import Configuration, Member, Registration
from qanat.protocols.chain.configuration import newest_of
from qanat.protocols.chain.knowledge import Knowledge
from qanat.protocols.chain.records import Record, compact, decode, encode
from qanat.protocols.chain.recovery import (
    Absent,
    Standing,
    absent,
    begun,
    forgotten,
    next_of,
    recover,
    recovered,
    standing,
    waiting,
)

A, B, C = (Member(name, number) for number, name in enumerate("abc", 1))


def following(now: Configuration, replicas: tuple[Member, ...], number: int = 0) -> Configuration:
    """The next one, taken up, with an identity of its own."""
    new = now.after(replicas=replicas)
    return msgspec.structs.replace(new, id=number or 100 + new.epoch, confirmed=True)


FIRST = Configuration(1, (A,), id=101, confirmed=True)
BOTH = following(FIRST, (A, B))
ALONE = following(BOTH, (B,))


def says(member: Member, claim: Configuration | None, promised: int = 0, **more: int) -> Registration:
    """Another life of a replica that kept all."""
    back = Member(member.address, member.incarnation + 10)
    told = Registration(back, True, member.incarnation, 1, claim, promised or (claim.epoch if claim else 0))
    return msgspec.structs.replace(told, **more)


@pytest.mark.parametrize(
    ("claim", "now", "expected"),
    [
        (BOTH, BOTH, Standing.KNOWN),
        (FIRST, ALONE, Standing.KNOWN),
        (ALONE, BOTH, Standing.AHEAD),
        (ALONE, following(BOTH, (A,), 7), Standing.APART),
        (ALONE, following(following(BOTH, (A,), 7), (A, C)), Standing.APART),
        (following(ALONE, (B, C)), following(BOTH, (A,), 7), Standing.APART),
        (
            following(ALONE, (B, C)),
            msgspec.structs.replace(following(BOTH, (A,), 7), confirmed=False),
            Standing.AHEAD,
        ),
        (ALONE, recover(BOTH, 5), Standing.AHEAD),
        (ALONE, recover(ALONE, 5), Standing.KNOWN),
    ],
)
def test_a_claim_is_known_ahead_or_apart(
    claim: Configuration, now: Configuration, expected: Standing
) -> None:
    assert standing(claim, now) is expected


def test_what_is_older_than_the_lineage_is_not_told_apart() -> None:
    now = BOTH
    for _ in range(100):
        now = following(now, (A, B))
    assert standing(FIRST, now) is Standing.KNOWN
    assert len(now.lineage) == 64


def test_nobody_decides_anything_where_somebody_knows_of_more() -> None:
    asked = next_of(BOTH, [says(A, BOTH), says(B, ALONE, promised=9)], 2, [])
    assert asked is not None
    assert (asked.recovering, asked.epoch, asked.replicas) == (True, 10, (B,))
    assert asked.lineage[-1] == (ALONE.epoch, ALONE.id)


def test_a_promise_alone_is_enough_to_ask_again() -> None:
    asked = forgotten(BOTH, [says(A, BOTH, promised=5)], False)
    assert asked is not None
    assert (asked.epoch, asked.recovering) == (6, True)
    assert forgotten(BOTH, [says(A, BOTH)], False) is None
    twice = forgotten(BOTH, [says(A, BOTH)], True)
    assert twice is not None
    assert twice.epoch == BOTH.epoch + 1


def test_who_goes_on_is_known_when_all_were_asked_who_may_know_more() -> None:
    asked = recover(BOTH, 5)
    first = says(A, BOTH, promised=6)
    assert absent(asked, newest_of([first])) == [Absent("b", False)]
    assert absent(asked, newest_of([first, says(B, BOTH)])) == [Absent("b", False)]  # it has not promised yet
    assert absent(asked, newest_of([first, says(B, None, promised=6, since=12)])) == [Absent("b", True)]
    assert recovered(asked, newest_of([first]), ()) is None
    new = recovered(asked, newest_of([first, says(B, BOTH, promised=6)]), ())
    assert new is not None
    assert (new.epoch, new.replicas, new.recovering, new.wary) == (7, (first.member,), False, True)


def test_before_an_epoch_was_taken_up_those_before_it_may_know_more() -> None:
    unconfirmed = msgspec.structs.replace(ALONE, confirmed=False)
    asked = recover(unconfirmed, 5)
    last = says(B, unconfirmed, promised=6)
    assert absent(asked, newest_of([last])) == [Absent("a", False)]
    assert absent(asked, newest_of([says(B, ALONE, promised=6)])) == []


def test_who_was_joining_may_have_all() -> None:
    joining = msgspec.structs.replace(BOTH, joining=C)
    found = absent(recover(joining, 5), newest_of([says(A, joining, 6), says(B, joining, 6)]))
    assert found == [Absent("c", False)]


def test_an_operator_may_say_who_is_gone() -> None:
    asked = recover(BOTH, 5)
    emptied = Registration(Member("a", 11), False, 0, 11, None, 6)
    third = says(C, BOTH, promised=6)
    registered = newest_of([emptied, third])
    assert recovered(asked, registered, ["b"]) is None
    new = recovered(asked, registered, ["a", "b"])
    assert new is not None
    assert new.replicas == (third.member,)


def test_a_first_configuration_waits_for_all_that_are_named_and_for_no_claim() -> None:
    new = [Registration(Member(name, 5), False) for name in "ab"]
    assert begun(new[0].member, newest_of(new), "abc", ()) is None
    assert begun(new[0].member, newest_of(new), "abc", "c") == Configuration(1, (new[0].member,))
    assert begun(new[0].member, newest_of(new), "ab", ()) == Configuration(1, (new[0].member,))
    asked = begun(new[0].member, newest_of([*new, says(C, BOTH)]), "abcd", ())
    assert asked is not None
    assert (asked.recovering, asked.epoch) == (True, BOTH.epoch + 1)


def test_it_says_whom_it_waits_for() -> None:
    assert waiting(None, newest_of([]), "ab", ()) == (
        "its coordinator knows no chain, and may have forgotten one",
        ("a", "b"),
        (),
    )
    asked = waiting(recover(BOTH, 5), newest_of([says(A, BOTH, promised=6)]), (), ())
    assert asked is not None
    assert asked.away == ("b",)
    gone = waiting(BOTH, newest_of([Registration(Member("a", 9), False)]), (), ())
    assert gone is not None
    assert (gone.away, gone.emptied) == (("b",), ("a",))
    assert waiting(BOTH, newest_of([Registration(A, True)]), (), ()) is None


def test_what_is_known_survives_in_the_journal_and_in_a_shorter_one() -> None:
    written: list[bytes] = []

    def record(each: Record) -> None:
        written.append(encode(each))

    known = Knowledge(record)
    known.begin(A, True)
    known.note(msgspec.structs.replace(FIRST, confirmed=False))
    known.join(A, 1)
    known.note(FIRST)
    known.note(FIRST)
    known.note(BOTH)
    known.note(recover(BOTH, 8))
    assert len(written) == 6
    for journal in (written, compact(written)):
        again = Knowledge(record)
        for each in journal:
            again.load(decode(each))
        assert again.registration(A) == Registration(A, True, A.incarnation, A.incarnation, BOTH, 9)
    assert len(compact(written)) == 4


def test_a_disk_whose_stream_was_discarded_vouches_for_nothing() -> None:
    written: list[bytes] = []

    def record(each: Record) -> None:
        written.append(encode(each))

    known = Knowledge(record)
    known.join(A, 1)
    known.forget(7)
    again = Knowledge(record)
    for each in compact(written):
        again.load(decode(each))
    assert not again.kept
    again.join(A, 2)
    last = Knowledge(record)
    for each in compact(written):
        last.load(decode(each))
    assert last.kept
