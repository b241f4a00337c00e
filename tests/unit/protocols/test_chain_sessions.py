"""The numbers of a replica's sessions rise, whatever becomes of its coordinator and of clocks."""

from __future__ import annotations

from tests.unit.protocols import copies_by_hand
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.test_hostile_messages import Streams

from qanat.kernel import Address
from qanat.protocols.chain import ChainConfig, Replica
from qanat.protocols.chain.configuration import Configuration, Member
from qanat.protocols.chain.records import Began, Joined, Record, Seen, encode

ME, OTHER = Address("a"), Address("b")
BOTH = Configuration(4, (Member(OTHER, 70), Member(ME, 60)), confirmed=True)


def started(*saved: Record) -> tuple[Replica, copies_by_hand.Session]:
    session = copies_by_hand.Session()
    replica = Replica(
        InOrder(ME),
        ChainConfig(),
        Streams(),
        lambda _context, _listener: session,
        owns=lambda _stream: True,
        folder="/chains/eu",
        wary_us=1,
    )
    replica.on_start(1, [encode(each) for each in saved])
    return replica, session


def test_a_session_is_asked_for_above_all_that_earlier_lives_knew() -> None:
    """A coordinator that lost its journal takes numbers from its clock, which may have been ahead before."""
    assert started()[1].above == 0
    assert started(Began(50))[1].above == 50
    assert started(Began(50), Joined(3, 60))[1].above == 60
    assert started(Began(50), Joined(3, 60), Seen(BOTH))[1].above == 70


def test_a_session_is_asked_for_above_all_that_this_life_has_read() -> None:
    replica, session = started(Began(50))
    me = Member(ME, 60)
    replica.manager.me = me
    replica._on_configuration(me, BOTH)
    assert session.above == 70
