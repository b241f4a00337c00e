"""A publisher of a copy: its log was cut and others' are not, and what operators do meanwhile."""

from __future__ import annotations

import pytest
from tests.unit.protocols.copies_by_hand import CopyDesk, Session
from tests.unit.protocols.publisher_by_hand import NOW, row

from qanat.events.position import Position
from qanat.protocols.publisher.messages import Acknowledge, Loss, Notice, Token
from qanat.protocols.publisher.reading import CloseLog, Configure, Move, ReadLog, WasLost

pytestmark = pytest.mark.paper("W10")


def up_to_60() -> CopyDesk:
    """Shard a is marked there."""
    desk = CopyDesk()
    desk.join("s1")
    desk.settle()
    desk.read(*(row(number) for number in range(11, 61)))
    for _ in range(10):
        desk.timer("mark")
    desk.say("s1", Acknowledge, desk.last("s1", Token).number)
    desk.handle_all("s1")
    desk.tick(3)
    return desk


def is_released(desk: CopyDesk) -> None:
    """Its subscriber gives it up."""
    desk.tick(50)
    desk.say("s1", Acknowledge, desk.last("s1", Token).number)
    desk.handle_all("s1")
    desk.tick(3)
    assert desk.nodes.holding().owner == "db-2@99"


def test_what_another_copy_has_is_waited_for_without_a_read_until_it_can_go_on_there() -> None:
    desk = up_to_60()
    desk.another(0, 50)
    desk.context.take("deliver")
    desk.lose(Position(80))
    for _ in range(9):
        desk.tick()
        desk.timer("plan/soon")
        desk.timer("plan")
    asked = desk.context.take("deliver")
    assert not [one for one in asked if isinstance(one, ReadLog)]
    assert len([one for one in asked if isinstance(one, CloseLog)]) == 1
    assert not desk.sent("s1", Loss)
    (why,) = desk.machine.served["cache"].troubles.values()
    assert why.startswith("part 0 of cache waits for db-2: this copy's log has no longer what comes next")
    desk.another(0, 70)
    is_released(desk)
    assert desk.machine.served["cache"].troubles == {}


def test_it_is_lost_when_that_copy_has_gone() -> None:
    desk = up_to_60()
    desk.another(0, 50)
    desk.lose(Position(80))
    desk.nodes.nodes.pop("/shop/copies/db-2@99")
    desk.machine.on_event("changed", "/shop/copies")
    desk.tick(3)
    desk.settle()
    desk.lose(Position(80))
    assert [(loss.after, loss.upto) for loss in desk.sent("s1", Loss)][:1] == [(Position(60), Position(80))]
    assert desk.machine.served["cache"].troubles == {}


def test_nothing_is_told_to_be_lost_while_it_is_not_known_which_copies_there_are() -> None:
    desk = up_to_60()
    desk.another(0, 99)
    desk.machine.on_event("changed", "/shop/copies")
    desk.lose(Position(80))
    assert not desk.sent("s1", Loss)
    is_released(desk)
    assert not desk.sent("s1", Loss)


def test_an_update_that_is_too_large_for_a_message_says_nothing_of_the_log() -> None:
    """No copy can give it."""
    desk = up_to_60()
    desk.another(0, 99)
    caravan = desk.only_caravan()
    assert caravan.reading is not None
    desk.machine.on_request(
        NOW, WasLost(caravan.number, caravan.reading, Position(61), "it is too large", cut=False)
    )
    assert [(loss.after, loss.upto) for loss in desk.sent("s1", Loss)][:1] == [(Position(60), Position(61))]
    assert desk.machine.owners.copies.log == (Position(0), Position(99))
    desk.tick(50)
    assert desk.nodes.holding().owner.startswith("db-1")


def test_a_part_that_is_not_served_yet_is_moved_all_the_same() -> None:
    """Leases of the owner before are not over."""
    desk = up_to_60()
    desk.nodes.nodes.pop(f"/shop/copies/{desk.machine.owners.me}")
    taker = CopyDesk(desk.nodes, "db-2")
    assert taker.machine.waits_for == [("cache", 0)]
    taker.machine.on_request(NOW, Move("cache", Position(20)))
    taker.tick(2)
    kept = taker.nodes.holding().kept
    assert kept.floors == {0: Position(20)}
    assert {flow.position for flow in kept.flows.values()} == {Position(20)}
    taker.timer("owners/wary/cache/0")
    assert taker.machine.served["cache"].scouts[0].position == Position(20)


def test_an_application_that_goes_and_comes_again_waits_for_those_who_worked_for_it() -> None:
    desk = up_to_60()
    applications = dict(desk.machine.applications)
    desk.machine.on_request(NOW, Configure({}, desk.machine.config))
    desk.machine.on_request(NOW, Configure(applications, desk.machine.config))
    desk.tick(3)
    assert desk.machine.waits_for == [("cache", 0)]
    desk.join("s2")
    desk.settle()
    assert not [notice for notice in desk.sent("s2", Notice) if notice.shards]


def test_copies_of_other_shards_share_nothing() -> None:
    session = Session()
    one = CopyDesk(session, "db-1", sharding="hash:64", copies=())
    two = CopyDesk(session, "db-2", sharding="hash:64", parts=2, copies=())
    one.machine.on_event("changed", "/shop/copies")
    for _ in range(9):
        one.tick()
        two.tick()
    assert list(one.machine.owners.owned) == [("cache", 0)]
    assert list(two.machine.owners.owned) == []
    troubles = two.machine.served["cache"].troubles
    assert (
        "with shards by 'hash:64' in 1 parts, and this copy has shards by 'hash:64' in 2 parts" in troubles[0]
    )
    assert set(troubles) == {0, 1}
