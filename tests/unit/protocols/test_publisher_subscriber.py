"""The subscriber's machine by hand: what was handed over is begun under the lease, or comes back and is
handed over again in its place."""

from __future__ import annotations

import pytest
from tests.unit.protocols.contexts import InOrder

from qanat.kernel import Address
from qanat.protocols.publisher.config import SubscriberConfig
from qanat.protocols.publisher.messages import Alive, Gone, Granted, Handled, Join, Notice, Welcome
from qanat.protocols.publisher.subscriber import Done, Handed, Returned, Stop, Stopped, Subscriber

NOW, LEASE_US = 1_700_000_000_000_000, 600_000
LATER = NOW + LEASE_US
PUBLISHER, OTHER = Address("publisher"), Address("other")


class Desk:
    """An instance that has a session with each publisher; timers are as late as they can be: they never
    fire."""

    def __init__(self, *publishers: Address) -> None:
        self.context = InOrder(Address("cache"))
        config = SubscriberConfig("cache", ahead=2)
        self.machine = Subscriber(self.context, config, publishers or (PUBLISHER,))
        self.machine.on_start(NOW, [])
        self.life = next(sent.life for _, sent in self.context.take("send") if isinstance(sent, Join))
        for publisher in publishers or (PUBLISHER,):
            self.welcome(NOW, publisher)

    def welcome(self, now_us: int, publisher: Address = PUBLISHER, session: int = 1) -> None:
        self.machine.on_message(now_us, publisher, Welcome(session, self.life, LEASE_US, 1 << 20))
        self.grant(now_us, publisher, session)

    def grant(self, now_us: int, publisher: Address = PUBLISHER, session: int = 1) -> None:
        """What it asked for last."""
        asked = [
            sent for to, sent in self.context.take("send") if to == publisher and isinstance(sent, Alive)
        ]
        self.machine.on_message(now_us, publisher, Granted(session, asked[-1].number))

    def renew(self, now_us: int, publisher: Address = PUBLISHER) -> None:
        self.machine.on_timer(now_us, f"alive/{publisher}")
        self.grant(now_us, publisher)

    def item(self, number: int, publisher: Address = PUBLISHER, now_us: int = NOW) -> None:
        self.machine.on_message(now_us, publisher, Notice(1, number, (f"s{number}",)))

    def handed(self) -> list[Handed]:
        return [item for item in self.context.take("deliver") if isinstance(item, Handed)]


def numbers(handed: list[Handed]) -> list[int]:
    return [each.item.number for each in handed]


def test_what_is_handed_over_may_be_begun_while_the_lease_lasts_and_not_after_it() -> None:
    desk = Desk()
    desk.item(1)
    (one,) = desk.handed()
    assert desk.machine.may_begin(one, LATER - 1)
    assert not desk.machine.may_begin(one, LATER), "no timer has said so: the process stood still"
    desk.renew(LATER - 1)
    assert desk.machine.may_begin(one, LATER), "it was granted again"


def test_what_comes_back_is_handed_over_again_in_order_and_only_under_a_lease() -> None:
    desk = Desk()
    for number in (1, 2, 3):
        desk.item(number)
    one, two = desk.handed()
    desk.machine.on_request(LATER, Returned(one.ticket))
    desk.machine.on_request(LATER, Returned(two.ticket))
    assert desk.handed() == [], "or it would go to and fro until there is a lease"
    assert not desk.machine.in_hand
    desk.renew(LATER)
    again = desk.handed()
    assert numbers(again) == [1, 2]
    assert all(desk.machine.may_begin(each, LATER) for each in again)
    assert not desk.machine.may_begin(two, LATER), "it is handed over under another number now"
    desk.machine.on_request(LATER, Done(again[0].ticket))
    assert numbers(desk.handed()) == [3]
    assert desk.machine.counts["returned"] == 2


def test_nothing_is_begun_before_what_comes_back_though_the_lease_is_held_again_meanwhile() -> None:
    """The second was handed over before it was known that the first comes back; a third is not."""
    desk = Desk()
    for number in (1, 2, 3):
        desk.item(number)
    one, two = desk.handed()
    desk.renew(LATER)
    desk.machine.on_request(LATER, Returned(one.ticket))
    assert desk.handed() == [], "the second is still to come back"
    assert not desk.machine.may_begin(two, LATER)
    desk.machine.on_request(LATER, Returned(two.ticket))
    assert numbers(desk.handed()) == [1, 2]


def test_another_publishers_items_go_on() -> None:
    desk = Desk(PUBLISHER, OTHER)
    desk.item(1)
    desk.item(1, OTHER)
    one, other = desk.handed()
    desk.renew(LATER, OTHER)
    desk.item(2, OTHER, LATER)
    desk.machine.on_request(LATER, Returned(one.ticket))
    assert desk.machine.may_begin(other, LATER)
    assert [(each.publisher, each.item.number) for each in desk.handed()] == [(OTHER, 2)]


@pytest.mark.parametrize("welcomed", [False, True])
def test_what_comes_back_from_a_session_that_is_over_is_void(welcomed: bool) -> None:
    desk = Desk()
    desk.item(1)
    (one,) = desk.handed()
    desk.machine.on_message(LATER, PUBLISHER, Gone(1))
    if welcomed:
        desk.welcome(LATER, session=2)
    assert not desk.machine.may_begin(one, LATER)
    desk.machine.on_request(LATER, Returned(one.ticket))
    desk.machine.on_request(LATER, Returned(one.ticket))
    assert desk.handed() == []
    assert not desk.machine.in_hand
    assert not [sent for _, sent in desk.context.take("send") if isinstance(sent, Handled)]


def test_who_stops_waits_for_what_comes_back_and_for_nothing_else() -> None:
    desk = Desk()
    desk.item(1)
    (one,) = desk.handed()
    desk.machine.on_request(NOW, Stop())
    desk.machine.on_message(LATER, PUBLISHER, Gone(1))
    assert Stopped() not in desk.context.take("deliver")
    desk.machine.on_request(LATER, Returned(one.ticket))
    assert Stopped() in desk.context.take("deliver")
