"""However many shards an application has and however they are called, each message names no more of them than
it can carry, and a publisher takes no more than it can keep on record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.events.position import Position
from qanat.kernel import Address, Message
from qanat.protocols.publisher.config import PublisherConfig, SubscriberConfig
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.holdings import too_many
from qanat.protocols.publisher.messages import (
    SHARDS_PER_MESSAGE,
    TO_PUBLISHER,
    TO_SUBSCRIBER,
    Acknowledge,
    GiveAway,
    Join,
    Leave,
    Loss,
    Mark,
    Notice,
    Reached,
    Token,
    Updates,
    Welcome,
    in_messages,
)
from qanat.protocols.publisher.reading import Move
from qanat.protocols.publisher.records import replay
from qanat.protocols.publisher.subscriber import GiveUp, Reach, Subscriber
from qanat.publisher.node import PublisherNode
from qanat.publisher.status import flow_page, problem_of
from qanat.wire.frame import CONTROL_LIMIT
from qanat.wire.messages import MessageCodec

MANY, LONG = 9_000, "é" * 150
"""Together more than a message carries, in number and in bytes."""
SHARDS = [f"{number}{LONG}" for number in range(MANY)]
CODEC: MessageCodec[Message] = MessageCodec((*TO_PUBLISHER, *TO_SUBSCRIBER))


def fits(message: Message) -> bool:
    control, _ = CODEC.encode(message)
    return len(control) <= CONTROL_LIMIT


@pytest.mark.parametrize(
    ("shards", "sizes"),
    [
        ([], []),
        (["a"], [1]),
        (["a"] * SHARDS_PER_MESSAGE, [SHARDS_PER_MESSAGE]),
        (["a"] * (SHARDS_PER_MESSAGE + 1), [SHARDS_PER_MESSAGE, 1]),
        (["a" * 100_000] * 3, [1, 1, 1]),
        (["b", "a" * 200_000, "b", "b"], [1, 1, 2]),
    ],
)
def test_so_many_as_a_message_names(shards: list[str], sizes: list[int]) -> None:
    found = list(in_messages(shards))
    assert [len(some) for some in found] == sizes
    assert [shard for some in found for shard in some] == shards


def begun() -> Desk:
    desk = Desk(PublisherConfig(caravans_max=1))
    desk.join("s1", window=1 << 30)
    desk.settle()
    desk.read(*(row(number + 1, shard) for number, shard in enumerate(SHARDS)))
    return desk


def look(desk: Desk) -> list[Token]:
    for _ in range(10):
        desk.timer("mark")
    return desk.sent("s1", Token)


def test_datamarkers_of_many_shards_come_in_several_tokens_which_count_one_by_one() -> None:
    desk = begun()
    assert all(map(fits, desk.sent("s1", Notice)))
    tokens = look(desk)
    assert len(tokens) > 2
    assert all(map(fits, tokens))
    told = [shard for token in tokens for mark in token.marks for shard in mark.shards]
    assert sorted(told) == sorted(SHARDS)
    assert look(desk) == tokens, "the next come when these are acknowledged"
    desk.say("s1", Acknowledge, tokens[1].number)
    marked = {
        shard for shard, flow in replay(desk.journal)["cache"].flows.items() if flow.position > Position(0)
    }
    assert marked == {shard for mark in tokens[1].marks for shard in mark.shards}
    for token in (tokens[0], *tokens[2:]):
        desk.say("s1", Acknowledge, token.number)
    assert {str(flow.position) for flow in replay(desk.journal)["cache"].flows.values()} == {f"{MANY}:0"}


def test_many_shards_are_free_when_the_last_of_their_last_tokens_is_handled() -> None:
    desk = begun()
    desk.handle_all("s1")
    desk.say("s1", Leave)
    tokens = [token for token in desk.sent("s1", Token) if token.last]
    assert len(tokens) > 2
    assert all(map(fits, tokens))
    link = desk.machine.links[Address("s1")]
    (leaving,) = link.leaving
    assert leaving.number == tokens[-1].number == link.number
    desk.handle_all("s1")
    assert Address("s1") not in desk.machine.links, "it has left"


def test_what_concerns_every_shard_comes_for_so_many_of_them_at_a_time() -> None:
    desk = begun()
    desk.machine.on_request(NOW, Move("cache", Position(1), (SHARDS[0],)))
    desk.settle()
    desk.read(row(MANY + 1, None), row(MANY + 2, SHARDS[0]))
    wide = [item for item in desk.sent("s1", Updates) if item.only]
    assert len(wide) > 2
    assert all(map(fits, wide))
    assert sorted(shard for item in wide for shard in item.only) == sorted(["", *SHARDS])
    desk.lose(Position(MANY + 9))
    assert all(map(fits, desk.sent("s1", Loss)))


def test_and_what_an_application_says_of_many_shards_goes_in_several_messages() -> None:
    context, publisher = InOrder(Address("cache")), Address("publisher")
    machine = Subscriber(context, SubscriberConfig("cache"), (publisher,))
    machine.on_start(NOW, [])
    life = next(sent.life for _, sent in context.take("send") if isinstance(sent, Join))
    machine.on_message(NOW, publisher, Welcome(1, life, 1_000_000, 1 << 20))
    context.take("send")
    machine.on_request(NOW, GiveUp(tuple(SHARDS)))
    given = [sent for _, sent in context.take("send") if isinstance(sent, GiveAway)]
    assert len(given) > 2
    assert all(map(fits, given))
    assert [shard for each in given for shard in each.shards] == SHARDS
    marks = (
        Mark(Position(7), tuple(SHARDS[:5_000])),
        *(Mark(Position(9, n), (shard,)) for n, shard in enumerate(SHARDS[5_000:])),
    )
    machine.on_request(NOW, Reach(publisher, marks))
    reached = [sent for _, sent in context.take("send") if isinstance(sent, Reached)]
    assert all(map(fits, reached))
    places = {shard: mark.position for mark in marks for shard in mark.shards}
    assert {
        shard: mark.position for each in reached for mark in each.marks for shard in mark.shards
    } == places


def test_a_part_whose_record_has_no_room_takes_no_more_shards_and_everybody_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1, "a"), row(2, "b"))
    served = desk.machine.served["cache"]
    part, why = ("cache", 0), too_many("cache", 0, 2, written=True)
    machine = cast(CopyPublisher, desk.machine)
    CopyPublisher.troubled(machine, part, why)
    assert problem_of(served) == why
    desk.read(row(3, "a"))
    assert not served.problem, "nothing stands still before there is a new one"
    desk.read(row(4, "c"), row(5, "a"))
    assert served.problem == why
    assert served.scouts[0].position == Position(3)
    assert desk.got("s1") == ["1:0", "2:0", "3:0", "5:0"]
    assert flow_page(desk.machine, NOW, {})["problems"] == {"cache": why}
    node = cast(PublisherNode, SimpleNamespace(_troubles={}))
    for _ in range(3):
        PublisherNode._tell_troubles(node, desk.machine)
    (record,) = caplog.records
    assert (record.levelname, record.reason) == ("ERROR", why)  # type: ignore[attr-defined]
    assert "2 shards" in why
    assert "publisher.parts" in why
    CopyPublisher.troubled(machine, part, "")
    assert problem_of(served) == ""
    desk.settle()
    assert min(caravan.at for caravan in desk.machine.caravans.all.values()) == Position(3)
    desk.read(row(4, "c"), row(5, "a"))
    assert desk.got("s1")[-1] == "4:0"


def test_names_of_shards_that_nobody_may_have_are_not_kept() -> None:
    desk = Desk(PublisherConfig(shards_max=4))
    desk.join("s1")
    desk.settle()
    desk.read(*(row(number, f"k{number}") for number in range(1, 4)))
    for first in range(10, 2_010, 100):
        desk.read(*(row(first + at, f"u{first + at}") for at in range(99)), row(first + 99, "k1"))
        desk.handle_all("s1")
        desk.timer("plan")
    assert len(desk.machine.router.names) < 4 + 2 * 100
    assert len(desk.got("s1")) == 3 + 20, "those that are known get theirs"
