"""What flows remember of the log's history, and what they do in a log that has another; driven by hand."""

from __future__ import annotations

import pytest
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.checks.publisher_log import Row, batch_of, mark_of
from qanat.events.position import Position
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.messages import Acknowledge, Mark, Reached, Token
from qanat.protocols.publisher.reading import Move, WasOther, WasRead
from qanat.protocols.publisher.records import compact, replay
from qanat.protocols.publisher.witness import Witness

pytestmark = pytest.mark.paper("W10")
BOTH = ("cache", "index")
HERE = ApplicationConfig(start="0:0")


def seen(position: int, of: int | None = None) -> Witness:
    """Up to a position the last update is that one, or the one at another."""
    return Witness(Position(position), mark_of(row(position if of is None else of)))


def read(desk: Desk, *rows: Row, upto: Position | None = None) -> None:
    """As a reader answers whose log has marks."""
    caravan = desk.rear()
    assert caravan.reading is not None
    last = upto or rows[-1].position
    batch, mark = (batch_of(rows), mark_of(rows[-1])) if rows else (None, b"")
    desk.machine.on_request(NOW, WasRead(caravan.number, caravan.reading, last, batch, mark=mark))


def acknowledge(desk: Desk, name: str = "s1") -> None:
    for _ in range(11):
        desk.timer("mark")
    desk.say(name, Acknowledge, desk.last(name, Token).number)
    desk.handle_all(name)


def begun(saved: list[bytes] | None = None, names: tuple[str, ...] = ("cache",)) -> Desk:
    """With one reader, and an instance of each application: `s1`, `s2`."""
    desk = Desk(PublisherConfig(caravans_max=1), saved, **dict.fromkeys(names, HERE))
    for number, application in enumerate(names, start=1):
        desk.join(f"s{number}", application)
    desk.settle()
    return desk


def again(desk: Desk, names: tuple[str, ...] = ("cache",)) -> Desk:
    return begun(compact(desk.journal), names)


def dispute(desk: Desk, witness: Witness) -> None:
    caravan = desk.rear()
    assert caravan.reading is not None
    desk.machine.on_request(NOW, WasOther(caravan.number, caravan.reading, witness, "it has another"))
    desk.timer("plan/soon")


def test_a_datamarker_is_kept_with_the_last_update_before_it_and_every_read_says_it() -> None:
    desk = begun()
    assert desk.asked()[-1].seen == ()
    read(desk, row(1), row(2))
    assert desk.asked()[-1].seen == (seen(2),)
    read(desk, upto=Position(7))
    assert desk.asked()[-1].seen == (seen(7, of=2),), "nothing came meanwhile"
    acknowledge(desk)
    kept = replay(compact(desk.journal))["cache"]
    assert {flow.seen for flow in kept.flows.values()} == {seen(7, of=2)}
    assert kept.seen == {0: seen(7, of=2)}
    assert again(desk).asked()[-1].seen == (seen(7, of=2),)


def test_a_datamarker_of_the_subscribers_own_accord_is_kept_with_the_last_that_is_known() -> None:
    desk = begun()
    read(desk, row(1))
    read(desk, row(2))
    for _ in range(11):
        desk.timer("mark")
    read(desk, row(3), row(4))
    desk.say("s1", Reached, (Mark(Position(3), ("a",)),))
    kept = replay(desk.journal)["cache"].flows["a"]
    assert (kept.position, kept.seen) == (Position(3), seen(2))


def test_who_got_on_ahead_is_compared_when_the_caravan_comes_by() -> None:
    desk = begun(names=BOTH)
    read(desk, row(1), row(2))
    acknowledge(desk, "s1")
    later = again(desk, BOTH)
    assert later.only_caravan().at == Position(0), "the other has marked nothing"
    assert later.asked()[-1].seen == (seen(2),)
    read(later, row(1))
    assert set(later.asked()[-1].seen) == {seen(1), seen(2)}


def test_in_another_history_a_flow_stands_still_and_says_so_until_an_operator_moves_it() -> None:
    desk = begun(names=BOTH)
    read(desk, row(1), row(2))
    acknowledge(desk, "s1")
    desk.machine.on_request(NOW, Move("index", Position(2)))
    later = again(desk, BOTH)
    assert later.asked()[-1].seen == (seen(2),)
    dispute(later, seen(2))
    cache, index = later.machine.served["cache"], later.machine.served["index"]
    assert (cache.dispute, index.dispute) == ("it has another", "")
    assert {one.caravan for one in cache.travellers} == {None}
    read(later, row(3), row(4))
    assert later.got("s2") == ["3:0", "4:0"], "whom an operator moved there is not held up"
    assert later.got("s1") == []
    later.timer("disputes")
    later.settle()
    assert later.rear().at == Position(2), "it is looked again"
    assert seen(2) in later.asked()[-1].seen
    dispute(later, seen(2))
    later.machine.on_request(NOW, Move("cache", Position(2)))
    later.settle()
    assert later.rear().at == Position(2)
    assert seen(2) not in later.asked()[-1].seen
    read(later, row(3), row(4))
    assert later.got("s1") == ["3:0", "4:0"]
    later.timer("disputes")
    assert cache.dispute == ""
    assert replay([*desk.journal, *later.journal])["cache"].flows["a"].seen is None
