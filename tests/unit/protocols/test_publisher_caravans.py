"""Readers of the log: who travels in which, and how fast each may read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.checks.publisher_log import batch_of
from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.caravans.pace import Meter, explained
from qanat.protocols.caravans.policy import WEIGHT, Place, Plan, Threshold
from qanat.protocols.publisher.allocation import Caravans
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.flows import Caravan
from qanat.protocols.publisher.reading import WasRead
from qanat.protocols.publisher.snapshots import TablePace

S = 1_000_000


def caravans(*at: int) -> Caravans:
    found = Caravans(InOrder(Address("publisher")))
    for number, position in enumerate(at, 1):
        found.all[number] = Caravan(number, Position(position))
    return found


def paced(meter: Meter, lead: Caravan, bytes_s: float) -> int:
    """A lead that reads so fast for a while; what time it is then."""
    for step in range(100):
        meter.took(lead, int(bytes_s / 10), NOW + step * S // 10)
    return NOW + 10 * S


@pytest.mark.paper("W7")
@pytest.mark.parametrize("pace", [1e4, 1e6, 200e6])
def test_by_the_papers_rule_trailing_caravans_read_between_1_25_and_2_times_as_fast_as_the_lead(
    pace: float,
) -> None:
    meter, some = Meter(PublisherConfig()), caravans(100, 50, 20)
    now = paced(meter, some.all[1], pace)
    lead = meter.rate(some.all[1], now)
    assert lead == pytest.approx(pace, rel=0.1)
    for total, times in ((0.0, [2, 2]), (4.5, [2, 1.5]), (4.2, [2, 0]), (2.6, [1.6, 0])):
        meter.config = PublisherConfig(replay_bytes_s=0, total_bytes_s=total * lead)
        meter.allot(some, now)
        assert [meter.allowed(some.all[number]) / lead for number in (2, 3)] == pytest.approx(times)


@pytest.mark.paper("W7")
@pytest.mark.parametrize(("pace", "allowed"), [(0.0, 64e6), (1e6, 64e6), (31e6, 64e6), (200e6, 400e6)])
def test_as_it_is_trailing_caravans_read_at_64_mb_a_second_or_twice_as_fast_as_the_lead(
    pace: float, allowed: float
) -> None:
    meter, some = Meter(PublisherConfig()), caravans(100, 50, 20)
    now = paced(meter, some.all[1], pace)
    meter.allot(some, now)
    for number in (2, 3):
        assert meter.allowed(some.all[number]) == pytest.approx(allowed, rel=0.1)
        assert "replay_bytes_s 64,000,000" in explained(some, meter, some.all[number], True, now)


@pytest.mark.paper("W7")
def test_the_total_is_shared_lead_first_and_who_could_not_catch_up_waits() -> None:
    config = PublisherConfig(total_bytes_s=4e6, replay_bytes_s=0)
    meter, some = Meter(config), caravans(100, 50, 20)
    now = paced(meter, some.all[1], 1e6)
    pace = meter.rate(some.all[1], now)
    meter.allot(some, now)
    assert meter.allowed(some.all[1]) == 4e6
    assert meter.allowed(some.all[2]) == 2 * pace
    assert meter.allowed(some.all[3]) == 0, "what is left is less than 1.25 times the lead's rate"
    assert meter.delay_us(some.all[3], now) is None
    assert sum(meter.allowed(some.all[number]) for number in (2, 3)) + pace <= 4e6


def test_the_nearest_gets_what_is_left_however_little() -> None:
    meter, some = Meter(PublisherConfig(total_bytes_s=1.5e6, replay_bytes_s=0)), caravans(100, 50)
    now = paced(meter, some.all[1], 1e6)
    meter.allot(some, now)
    assert 0 < meter.allowed(some.all[2]) < 0.6e6


@pytest.mark.paper("W7")
def test_no_caravan_reads_faster_than_its_limit() -> None:
    meter, some = Meter(PublisherConfig(caravan_bytes_s=1e6)), caravans(100)
    meter.allot(some, NOW)
    now = NOW
    for _ in range(50):
        meter.took(some.all[1], 100_000, now)
        now += meter.delay_us(some.all[1], now) or 0
    assert now - NOW >= 4.5 * S, "5 MB at 1 MB/s, less a burst"


@pytest.mark.paper("W7")
def test_caravans_that_are_made_one_after_the_other_read_no_faster_than_one() -> None:
    meter, some = Meter(PublisherConfig(caravan_bytes_s=1e6)), caravans(100)
    now = NOW
    for number in range(1, 6):
        some.all = {number: Caravan(number, Position(100))}
        meter.allot(some, now)
        for _ in range(5):
            meter.took(some.all[number], 100_000, now)
            now += meter.delay_us(some.all[number], now) or 0
    assert now - NOW >= 2.4 * S, "2.5 MB at 1 MB/s: none of them had saved up anything"


def test_at_night_trailing_caravans_are_not_held_back_by_a_lead_that_reads_nothing() -> None:
    meter, some = Meter(PublisherConfig()), caravans(100, 50)
    meter.allot(some, NOW)
    assert meter.allowed(some.all[2]) == meter.config.replay_bytes_s


def test_by_the_papers_rule_they_wait_for_such_a_lead() -> None:
    meter, some = Meter(PublisherConfig(replay_bytes_s=0)), caravans(100, 50)
    meter.allot(some, NOW)
    assert meter.delay_us(some.all[2], NOW) is None
    assert "the lead reads nothing" in explained(some, meter, some.all[2], True, NOW)
    tables = TablePace(PublisherConfig(replay_bytes_s=0))
    tables.share(dict.fromkeys([-1]))  # type: ignore[arg-type]  # it looks at numbers alone
    assert tables._allowed == {-1: math.inf}, "rows have no lead that they could wait for"


def test_without_limits_nobody_waits() -> None:
    meter, some = Meter(PublisherConfig()), caravans(100)
    meter.allot(some, NOW)
    meter.took(some.all[1], 1 << 30, NOW)
    assert meter.delay_us(some.all[1], NOW) == 0


def two_applications(**config: int) -> Desk:
    """One that is far behind, and one at 100."""
    desk = Desk(
        PublisherConfig(near=5, **config),  # type: ignore[arg-type]
        old=ApplicationConfig(start="0:0"),
        new=ApplicationConfig(start="100:0"),
    )
    desk.join("o1", "old")
    desk.join("n1", "new")
    desk.settle()
    return desk


@pytest.mark.paper("W7")
def test_who_is_behind_has_a_caravan_of_its_own_until_it_comes_to_the_lead() -> None:
    desk = two_applications()
    lead, trailing = sorted(desk.machine.caravans.all.values(), key=lambda one: one.at, reverse=True)
    assert (lead.at, trailing.at) == (Position(100), Position(0))
    rows = [row(number) for number in range(95, 106)]
    desk.machine.on_request(NOW, WasRead(trailing.number, Position(0), Position(105), batch_of(rows)))
    assert desk.got("o1") == [f"{number}:0" for number in range(95, 101)], "and not what the lead will read"
    assert list(desk.machine.caravans.all.values()) == [lead]
    assert desk.machine.caravans.merges == 1
    assert lead.weight == 3, "two scouts and a flow"


@pytest.mark.paper("W7")
def test_with_one_caravan_those_ahead_wait_and_get_nothing_twice() -> None:
    desk = two_applications(caravans_max=1)
    assert desk.only_caravan().at == Position(0)
    desk.read(row(50), row(101))
    assert desk.got("o1") == ["50:0", "101:0"]
    assert desk.got("n1") == ["101:0"]


@pytest.mark.paper("W7")
def test_a_subscriber_that_is_slow_gets_off_and_costs_the_others_nothing() -> None:
    desk = Desk(fast=ApplicationConfig(start="0:0"), slow=ApplicationConfig(start="0:0"))
    desk.join("f1", "fast")
    desk.join("s1", "slow", window=300)
    desk.settle()
    for number in range(1, 6):
        desk.read(row(number))
        desk.handle_all("f1")
    assert desk.got("f1") == [f"{number}:0" for number in range(1, 6)]
    assert desk.got("s1") == ["1:0"]
    desk.handle_all("s1")
    desk.timer("plan/soon")
    behind = min(desk.machine.caravans.all.values(), key=lambda one: one.at)
    assert behind.at == Position(1)
    assert len(desk.machine.caravans.all) == 2


def test_if_all_are_slow_their_caravan_waits_for_them_where_it_is() -> None:
    desk = Desk()
    desk.join("s1", window=300)
    desk.settle()
    desk.read(row(1))
    caravan = desk.only_caravan()
    assert caravan.reading is None
    desk.timer("plan")
    assert desk.only_caravan() is caravan
    desk.handle_all("s1")
    assert caravan.reading == Position(1)


def test_an_answer_to_what_was_asked_before_a_turn_counts_for_nothing() -> None:
    desk = two_applications(caravans_max=1)
    caravan = desk.only_caravan()
    desk.machine.on_request(NOW, WasRead(caravan.number, Position(3), Position(9), batch_of([row(9)])))
    assert caravan.at == Position(0)
    assert desk.got("o1") == []


class Seen:
    """A policy that notes what it is shown."""

    def __init__(self) -> None:
        self.places: list[Place] = []

    def plan(self, places: Sequence[Place], most: int) -> Plan:
        self.places = list(places)
        return Threshold(0).plan(places, most)


@pytest.mark.paper("W7")
def test_an_application_counts_as_one_however_many_of_its_shards_are_known() -> None:
    desk, policy = two_applications(caravans_max=2), Seen()
    desk.machine.policy = policy
    desk.read(row(1, "a"), row(2, "b"), row(3, "c"))
    desk.timer("plan")
    old, new = policy.places
    assert (old.position, new.position) == (Position(3), Position(100))
    assert old.weight == new.weight == WEIGHT, "three flows and their scout, and a scout alone"


def test_a_lead_is_live_once_it_has_come_to_the_end_of_the_log_until_it_is_turned_back() -> None:
    desk, policy = two_applications(caravans_max=2), Seen()
    desk.machine.policy = policy
    lead = desk.machine.caravans.lead
    assert lead is not None
    for batch, upto in ((batch_of([row(101)]), Position(101)), (None, Position(101))):
        desk.timer("plan")
        assert [place.live for place in policy.places] == [False, False]
        assert lead.reading is not None
        desk.machine.on_request(NOW, WasRead(lead.number, lead.reading, upto, batch))
    desk.timer("plan")
    assert [place.live for place in policy.places] == [False, True]
    desk.machine.on_request(NOW, WasRead(lead.number, Position(101), Position(102), batch_of([row(102)])))
    desk.timer("plan")
    assert [place.live for place in policy.places] == [False, True], "it goes on as the log grows"
    lead.turn(Position(50))
    assert not lead.live
