"""A publisher whose application begins with rows: from where it reads what, by hand."""

from __future__ import annotations

import pytest
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.checks.publisher_log import Row, batch_of
from qanat.events.position import Position
from qanat.protocols.publisher.config import SNAPSHOT, ApplicationConfig
from qanat.protocols.publisher.messages import Acknowledge, Token
from qanat.protocols.publisher.reading import Located, Move, ReadLog, WasRead
from qanat.protocols.publisher.records import compact, replay
from qanat.protocols.publisher.tables import LAST_INDEX

END = Position(7, LAST_INDEX)


class Begun(Desk):
    """`cache` begins with the rows as of transaction 7."""

    def __init__(self, saved: list[bytes] | None = None) -> None:
        super().__init__(saved=saved, cache=ApplicationConfig(start=SNAPSHOT))
        if saved is None:
            self.machine.on_request(NOW, Located("cache", SNAPSHOT, Position(7)))

    def asks(self) -> ReadLog:
        return self.asked()[-1]

    def rows(self, asked: ReadLog, *rows: tuple[int, Row]) -> None:
        """Number and row."""
        places = [Position(7, number) for number, _ in rows]
        batch = batch_of([each for _, each in rows], places)
        self.machine.on_request(NOW, WasRead(asked.caravan, asked.after, places[-1], batch))

    def finish(self, asked: ReadLog) -> None:
        self.machine.on_request(NOW, WasRead(asked.caravan, asked.after, END, None))

    def mark(self, name: str) -> None:
        for _ in range(12):
            self.timer("mark")
        token = self.last(name, Token)
        self.say(name, Acknowledge, token.number)
        self.handle_all(name)


@pytest.mark.paper("W6")
def test_rows_are_read_first_then_the_log_from_where_it_was() -> None:
    desk = Begun()
    desk.join("s1")
    desk.settle()
    asked = desk.asks()
    assert asked.tables is not None and asked.after == Position(7)
    assert (asked.tables.application, asked.tables.snapshot.end, asked.tables.beyond) == ("cache", END, 0)
    desk.rows(asked, (1, row(3, "a")), (2, row(6, "b")))
    asked = desk.asks()
    assert asked.tables is not None and asked.tables.beyond == 2
    assert desk.machine.caravans.all == {}
    desk.finish(asked)
    desk.timer("plan/soon")
    asked = desk.asks()
    assert asked.tables is None and asked.after == END
    assert desk.machine.snapshots.all == {}
    desk.read(row(8, "a"))
    assert desk.got("s1") == ["7:1", "7:2", "8:0"]


def test_who_is_behind_is_gone_back_for_under_numbers_that_nobody_has_had() -> None:
    desk = Begun()
    desk.join("s1")
    desk.settle()
    desk.rows(desk.asks(), (1, row(3, "a")), (2, row(6, "b")))
    desk.mark("s1")
    desk.rows(desk.asks(), (3, row(4, "c")))
    again = Begun([*desk.journal])
    again.join("s1")
    again.settle()
    asked = again.asks()
    assert asked.tables is not None and asked.after == Position(7, 2), "at its datamarker"
    assert asked.tables.beyond == 2
    again.rows(asked, (3, row(3, "a")), (4, row(6, "b")), (5, row(4, "c")))
    assert again.got("s1") == ["7:3", "7:4", "7:5"]
    again.machine.on_link_down(NOW, next(iter(again.machine.links)))
    again.join("s1", attempt=1)
    again.settle()
    asked = again.asks()
    assert asked.tables is not None and asked.after == Position(7, 2)
    assert asked.tables.beyond == 5, "the scout has been there"


def test_what_is_on_record_is_kept_when_the_journal_is_made_short() -> None:
    desk = Begun()
    desk.join("s1")
    desk.settle()
    desk.rows(desk.asks(), (1, row(3, "a")))
    desk.mark("s1")
    kept = replay(compact(desk.journal))["cache"]
    assert kept.snapshots == {0: 7} and kept.floors == {0: Position(7, 1)}
    assert kept == replay(desk.journal)["cache"]


def test_an_operator_ends_a_snapshot_or_lets_one_shard_have_it_again() -> None:
    desk = Begun()
    desk.join("s1")
    desk.settle()
    desk.rows(desk.asks(), (1, row(3, "a")), (2, row(6, "b")))
    desk.finish(desk.asks())
    desk.timer("plan/soon")
    flow = desk.machine.served["cache"].flows["a"]
    desk.machine.on_request(NOW, Move("cache", Position(5), ("a",)))
    assert flow.position == END, "one alone would come by the snapshot again on its way"
    desk.machine.on_request(NOW, Move("cache", Position(7), ("a",)))
    desk.timer("plan/soon")
    (caravan,) = desk.machine.snapshots.all.values()
    assert [*caravan.travellers] == [flow]
    desk.machine.on_request(NOW, Move("cache", Position(5)))
    desk.timer("plan/soon")
    assert desk.machine.snapshots.all == {} and desk.only_caravan().at == Position(5)
    assert replay(desk.journal)["cache"].snapshots == {}
