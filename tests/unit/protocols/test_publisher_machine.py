"""What a publisher does for one application after the other, driven by hand."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.checks.publisher_log import batch_of
from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.publisher import link
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.messages import (
    Acknowledge,
    GiveAway,
    Gone,
    Granted,
    Leave,
    Loss,
    Mark,
    Notice,
    Reached,
    Refused,
    Token,
    Updates,
)
from qanat.protocols.publisher.reading import Configure, Give, Locate, Located, Move, Quit, WasRead
from qanat.protocols.publisher.records import compact, replay

RELIABLE = ApplicationConfig(start="0:0")


def marked(desk: Desk, application: str = "cache") -> dict[str, str]:
    """What would be known after a crash."""
    return {shard: str(flow.position) for shard, flow in replay(desk.journal)[application].flows.items()}


@pytest.mark.paper("W3")
def test_a_shard_goes_to_one_subscriber_in_order_and_shards_are_noticed() -> None:
    desk = Desk()
    for name in ("s1", "s2"):
        desk.join(name)
    desk.settle()
    desk.read(*(row(number, "abcdefgh"[number % 8]) for number in range(1, 25)))
    owners = {
        shard: name for name in ("s1", "s2") for item in desk.sent(name, Notice) for shard in item.shards
    }
    assert sorted(owners) == list("abcdefgh")
    assert set(owners.values()) == {"s1", "s2"}
    for name in ("s1", "s2"):
        wanted = [f"{n}:0" for n in range(1, 25) if owners["abcdefgh"[n % 8]] == name]
        assert desk.got(name) == wanted


@pytest.mark.paper("W4")
def test_datamarkers_come_every_30_s_and_count_when_they_are_acknowledged() -> None:
    desk = Desk()
    assert desk.machine.config.marker_ms == 30_000
    desk.join("s1")
    desk.settle()
    desk.read(row(1), row(2))
    for _ in range(11):
        desk.timer("mark")
    token = desk.last("s1", Token)
    assert token.marks == (Mark(Position(2), ("a",)),)
    assert marked(desk) == {"a": "0:0"}
    desk.say("s1", Acknowledge, token.number)
    assert marked(desk) == {"a": "2:0"}
    again = Desk(saved=desk.journal)
    again.join("s1")
    again.settle()
    assert again.only_caravan().at == Position(2)


@pytest.mark.paper("W4")
def test_a_subscriber_may_send_a_datamarker_of_its_own_accord_but_not_for_what_it_was_not_sent() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1), row(2))
    desk.say("s1", Reached, (Mark(Position(1), ("a",)), Mark(Position(9), ("a",)), Mark(Position(1), ("x",))))
    assert marked(desk) == {"a": "1:0"}


@pytest.mark.paper("W9")
def test_after_a_broken_channel_everything_unmarked_is_sent_again() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1), row(2))
    desk.say("s1", Reached, (Mark(Position(1), ("a",)),))
    desk.machine.on_link_down(NOW, Address("s1"))
    assert not desk.machine.links[Address("s1")].takes
    desk.join("s1", attempt=1)
    desk.settle()
    assert desk.rear().at == Position(1), "while new shards are still looked for where it was"
    desk.read(row(2), row(3))
    desk.read(row(3))
    assert desk.got("s1") == ["1:0", "2:0", "2:0", "3:0"]


def test_who_only_asks_again_keeps_its_session() -> None:
    desk = Desk()
    first = desk.join("s1")
    assert desk.join("s1") == first
    assert desk.join("s1", attempt=1) != first


def test_shards_wait_for_a_lease_to_end_and_go_to_another_then() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1))
    desk.join("s2")
    desk.machine.on_link_down(NOW, Address("s1"))
    desk.timer("assign")
    assert desk.sent("s2", Notice) == []
    desk.timer("lost/s1")
    desk.timer("assign")
    assert desk.last("s2", Notice).shards == ("a",)
    desk.alive("s2")
    assert desk.last("s2", Granted).number == 1
    desk.say("s1", Leave)
    assert desk.sent("s1", Gone)


def begun() -> Desk:
    """Two subscribers have sessions, and one of them the only shard."""
    desk = Desk()
    for name in ("s1", "s2"):
        desk.join(name)
    desk.settle()
    desk.read(row(1))
    return desk


def given(desk: Desk) -> int:
    desk.timer("assign")
    return sum(len(desk.sent(name, Notice)) for name in ("s1", "s2"))


def test_after_a_restart_nobody_gets_what_another_may_still_work_on() -> None:
    first = begun()
    for saved in (first.journal, compact(first.journal)):
        again = Desk(saved=saved)
        again.join("s2", attempt=1)
        assert given(again) == 0, "the other has not been heard of"
        again.machine.on_request(NOW, Give("cache", "s2"))
        assert given(again) == 0
        again.join("s1", attempt=1)
        assert given(again) == 1, "it has no session any more, and nothing in hand"
    busy = Desk(saved=first.journal)
    busy.join("s1", attempt=1, busy=True)
    busy.join("s2", attempt=1)
    assert given(busy) == 0
    assert ("timer", "await/cache", PublisherConfig().outlasts_us) in busy.context.outputs
    busy.timer("await/cache")
    assert given(busy) == 1, "its lease is over"


def test_after_a_restart_who_is_known_to_have_left_is_not_waited_for() -> None:
    first = begun()
    for name in ("s1", "s2"):
        first.say(name, Leave)
        for token in first.sent(name, Token):
            first.say(name, Acknowledge, token.number)
        if Address(name) in first.machine.links:
            first.handle_all(name)
    later = Desk(saved=first.journal)
    later.join("s3")
    later.timer("assign")
    assert [item.shards for item in later.sent("s3", Notice)] == [("a",)]
    quits = begun()
    quits.machine.on_request(NOW, Quit())
    later = Desk(saved=quits.journal)
    later.join("s3")
    later.timer("assign")
    assert later.sent("s3", Notice) == [], "they may not have heard that it stopped"


@pytest.mark.paper("W11")
def test_a_shard_that_is_given_away_is_free_when_what_was_sent_is_handled() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1))
    desk.join("s2")
    desk.say("s1", GiveAway, ("a", "not mine"), "s2")
    token = desk.last("s1", Token)
    assert token.last
    assert desk.sent("s2", Notice) == []
    desk.say("s1", Acknowledge, token.number)
    desk.handle_all("s1")
    assert desk.last("s2", Notice).shards == ("a",)
    assert marked(desk) == {"a": "1:0"}


def test_who_leaves_finishes_what_it_has() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1))
    desk.say("s1", Leave)
    assert not desk.sent("s1", Gone)
    desk.say("s1", Acknowledge, desk.last("s1", Token).number)
    desk.handle_all("s1")
    assert desk.sent("s1", Gone)
    assert desk.machine.links == {}
    assert marked(desk) == {"a": "1:0"}


@pytest.mark.paper("W6")
def test_applications_come_and_go_and_change_while_it_runs() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1))
    red = ApplicationConfig(start="0:0", where="colour = blue")
    limits = PublisherConfig(caravans_max=9)
    desk.machine.on_request(NOW, Configure({"cache": red, "late": ApplicationConfig(start="7:3")}, limits))
    desk.join("l1", "late")
    desk.settle()
    assert desk.machine.served["late"].scouts[0].position == Position(7, 3)
    desk.machine.on_request(NOW, Configure({"cache": red}, limits))
    assert desk.sent("l1", Gone)
    desk.settle()
    desk.read(row(2), row(3, colour="blue"))
    assert desk.got("s1") == ["1:0", "3:0"]
    late = replay(desk.journal)["late"]
    assert (late.floors, list(late.holders)) == ({}, ["l1"]), "nothing but who may be at work for it"
    assert desk.machine.config.caravans_max == 9


@pytest.mark.paper("W8")
def test_columns_that_no_filter_looks_at_are_not_asked_for_and_a_read_without_them_is_not_filtered() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1))
    assert [asked.columns for asked in desk.asked()] == [(), ()]
    blue = ApplicationConfig(start="0:0", where="colour = blue and #op = insert")
    desk.machine.on_request(NOW, Configure({"cache": blue}, PublisherConfig()))
    caravan = desk.only_caravan()
    assert caravan.reading == Position(1)
    rows = [row(2), row(3, colour="blue")]
    without = batch_of(rows)  # as it was asked for: what it says of colours does not count
    desk.machine.on_request(NOW, WasRead(caravan.number, Position(1), Position(3), without, ()))
    assert desk.got("s1") == ["1:0"]
    assert [(asked.after, asked.columns) for asked in desk.asked()] == [(Position(1), ("colour",))]
    desk.machine.on_request(
        NOW, WasRead(caravan.number, Position(1), Position(3), batch_of(rows), ("colour",))
    )
    assert desk.got("s1") == ["1:0", "3:0"]
    everything = ApplicationConfig(start="0:0", columns=True)
    desk.machine.on_request(NOW, Configure({"cache": everything}, PublisherConfig()))
    desk.machine.on_request(NOW, WasRead(caravan.number, Position(3), Position(3), None, ("colour",)))
    assert desk.asked()[-1].columns is None


def test_an_application_that_nobody_serves_is_refused_with_those_that_are() -> None:
    desk = Desk()
    with pytest.raises(IndexError):
        desk.join("s1", "cash")
    refused = desk.last("s1", Refused)
    assert refused.code == "unknown_application"
    assert "'cache'" in refused.reason
    crowded = Desk(PublisherConfig(subscribers_max=1))
    crowded.join("s1")
    with pytest.raises(IndexError):
        crowded.join("s2")
    assert crowded.last("s2", Refused).code == "full"


@pytest.mark.paper("W6")
def test_an_operator_moves_an_application() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1), row(2, "b"))
    desk.machine.on_request(NOW, Move("cache", Position(1)))
    desk.settle()
    assert desk.only_caravan().at == Position(1)
    assert marked(desk) == {"a": "1:0", "b": "1:0"}
    assert desk.last("s1", Notice).shards == ("a", "b")


@pytest.mark.paper("W12")
def test_a_real_time_application_is_told_what_it_missed_and_goes_on_at_the_end() -> None:
    desk = Desk(live=ApplicationConfig(mode="real-time"))
    asked = [item for item in desk.context.take("deliver") if isinstance(item, Locate)]
    assert asked == [Locate("live", "latest")]
    desk.machine.on_request(NOW, Located("live", "latest", Position(5)))
    desk.join("s1", "live")
    desk.settle()
    assert desk.only_caravan().at == Position(5)
    desk.read(row(6))
    desk.machine.on_link_down(NOW, Address("s1"))
    desk.join("s1", "live", attempt=1)
    desk.settle()
    desk.machine.on_request(NOW, Located("live", "latest", Position(20)))
    desk.settle()
    told = {shard: item for item in desk.sent("s1", Loss) for shard in item.shards}
    assert (told["a"].after, told["a"].upto) == (Position(5), Position(20))
    assert (told[""].after, told[""].upto) == (Position(6), Position(20)), "of shards that were not known"
    assert desk.only_caravan().at == Position(20)


@pytest.mark.paper("W12")
def test_what_is_too_old_is_left_out_and_told() -> None:
    desk = Desk(fresh=ApplicationConfig(start="0:0", stale_ms=1_000))
    desk.context.date_us = NOW
    desk.join("s1", "fresh")
    desk.settle()
    desk.read(row(1, time_us=NOW - 2_000_000), row(2, time_us=NOW - 500_000))
    assert desk.got("s1") == ["2:0"]
    loss = desk.last("s1", Loss)
    assert (loss.after, loss.upto) == (Position(0), Position(1))
    assert "older than 1000 ms" in loss.reason


@pytest.mark.paper("W12")
def test_who_tolerates_staleness_gets_updates_together() -> None:
    config = PublisherConfig(held_bytes=2_000)
    desk = Desk(config, bundled=ApplicationConfig(start="0:0", tolerates_ms=500))
    desk.join("s1", "bundled")
    desk.settle()
    desk.read(row(1))
    desk.read(row(2))
    assert desk.got("s1") == []
    desk.timer("flush/s1")
    assert [len(item.batches) for item in desk.sent("s1", Updates)] == [2]
    for number in range(3, 30):
        desk.read(row(number))
    assert len(desk.sent("s1", Updates)) > 1
    held = desk.machine.links[Address("s1")].held_bytes
    assert held < 2_000
    for _ in range(11):
        desk.timer("mark")
    assert desk.machine.links[Address("s1")].held_bytes == 0, "a marker follows what it marks"


@pytest.mark.paper("W12")
def test_no_more_is_held_than_one_message_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"held_bytes must be at most 8,388,608: .* one message"):
        PublisherConfig(held_bytes=(8 << 20) + 1)
    monkeypatch.setattr(link, "FRAME_LIMIT", 1_000)
    desk = Desk(PublisherConfig(held_bytes=5_000), bundled=ApplicationConfig(start="0:0", tolerates_ms=500))
    desk.join("s1", "bundled")
    desk.settle()
    for number in range(1, 30):
        desk.read(row(number))
    sizes = [sum(batch.virtual_size for batch in item.batches) for item in desk.sent("s1", Updates)]
    assert len(sizes) > 2 and max(sizes) <= 1_000


@pytest.mark.paper("W13")
def test_what_the_log_lost_is_told_until_a_marker_after_it_is_acknowledged() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1), row(2, "b"))
    desk.lose(Position(50))
    loss = desk.sent("s1", Loss)
    assert {(item.shards, item.after, item.upto) for item in loss} == {
        (("a", "b"), Position(2), Position(50)),
        (("",), Position(2), Position(50)),
    }
    again = Desk(saved=desk.journal)
    again.join("s1")
    again.settle()
    while again.rear().at < Position(60):  # once more where a caravan came to another
        again.lose(Position(60))
    told = {shard: item for item in again.sent("s1", Loss) for shard in item.shards}
    assert sorted(told) == ["", "a", "b"]
    again.read(row(61, "new"))
    told = {shard: item for item in again.sent("s1", Loss) for shard in item.shards}
    assert (told["new"].after, told["new"].upto) == (Position(0), Position(60)), "it may have been there"
    for _ in range(11):
        again.timer("mark")
    again.say("s1", Acknowledge, again.last("s1", Token).number)
    third = Desk(saved=[*desk.journal, *again.journal])
    third.join("s1")
    third.settle()
    assert third.sent("s1", Loss) == []
    assert third.only_caravan().at == Position(61)


@pytest.mark.paper("W13")
def test_a_datamarker_of_its_own_accord_does_not_stand_for_a_loss_that_it_was_not_told_yet() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1, ""), row(2, "b"))
    desk.handle_all("s1")
    desk.lose(Position(50))
    assert {shard for item in desk.sent("s1", Loss) for shard in item.shards} == {"", "b"}
    desk.say("s1", Reached, (Mark(Position(1), ("",)),))
    kept = replay(desk.journal)["cache"].flows[""]
    assert kept.lost == (Position(2), Position(50)), "it was on its way when that was said"
    desk.handle_all("s1")
    desk.say("s1", Reached, (Mark(Position(50), ("",)),))
    assert replay(desk.journal)["cache"].flows[""].lost is None
    assert marked(desk)[""] == "50:0"


def test_what_concerns_every_shard_is_told_for_which_of_them_it_is_new() -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1), row(2, "b"))
    desk.machine.on_request(NOW, Move("cache", Position(1), ("a",)))
    desk.machine.on_request(NOW, Configure({"cache": RELIABLE}, PublisherConfig(caravans_max=1)))
    desk.settle()
    desk.read(row(2, "b"), row(2, None, 1), row(3, "a"), row(4, None), row(5, "b"))
    assert desk.got("s1")[2:] == ["2:1", "3:0", "4:0", "5:0"]
    wide = [item for item in desk.sent("s1", Updates) if item.only]
    assert [sorted(item.only) for item in wide] == [["", "a", "b"], ["", "a", "b"]]
    desk.read(row(6, None), row(7, "a"))
    assert desk.last("s1", Updates).only == (), "all of them are at one place now"


def test_with_too_many_shards_an_application_stands_still_and_says_so() -> None:
    desk = Desk(PublisherConfig(shards_max=2))
    desk.join("s1")
    desk.settle()
    desk.read(row(1, "a"), row(2, "b"))
    desk.read(row(3, "c"), row(4, "a"))
    served = desk.machine.served["cache"]
    assert "shards_max" in served.problem
    assert served.scouts[0].position == Position(2)
    assert desk.got("s1") == ["1:0", "2:0", "4:0"]
    larger = msgspec.structs.replace(desk.machine.config, shards_max=9)
    desk.machine.on_request(NOW, Configure({"cache": RELIABLE}, larger))
    desk.settle()
    assert min(caravan.at for caravan in desk.machine.caravans.all.values()) == Position(2)
