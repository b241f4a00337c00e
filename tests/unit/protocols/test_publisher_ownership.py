"""Who owns which part: copies that differ, applications that go while something is asked, many parts at
once."""

from __future__ import annotations

import pytest
from tests.unit.protocols.copies_by_hand import (
    COPIES,
    PART,
    PATH,
    Found,
    Held,
    Nodes,
    OwnerDesk,
    preferred_is_back,
)

from qanat.events.position import Position
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.ownership import Owners
from qanat.protocols.registry import Then

pytestmark = pytest.mark.paper("W10")


@pytest.mark.parametrize("division", ["", "by a", "by b"])
def test_a_part_is_given_to_no_copy_that_makes_other_shards(
    division: str,
) -> None:
    """An older one does not say how it makes them."""
    desk = OwnerDesk("by a")
    desk.has(3)
    preferred_is_back(desk, division)
    desk.tick(9)
    assert desk.nodes.holding().owner.startswith("db-1" if division == "by b" else "db-2")
    assert desk.nodes.holding().division == "by a"


def test_nor_does_one_take_over_what_is_on_record_of_others_and_everybody_is_told() -> None:
    """Of what was behind in one shard, some may lie before the datamarker of another."""
    desk = OwnerDesk("by a")
    desk.has(3)
    publisher = Held()
    taker = Owners("/shop", "db-2", publisher, 1, "by b")
    taker.configure({"cache": ApplicationConfig(copies=("db-2", "db-1"))}, 1)
    taker.copies.measured((Position(0), Position(99)))
    del desk.nodes.nodes[f"{COPIES}/{desk.owners.me}"]
    taker.on_opened(desk.nodes, 7)

    def tick() -> None:
        for _ in range(9):
            desk.nodes.answer()
            taker.tick(desk.nodes, later=True)
        desk.nodes.answer()

    tick()
    assert PART not in taker.owned
    assert desk.nodes.holding().owner == desk.owners.me
    (told,) = publisher.told
    assert told.startswith(
        "part 0 of cache is on record in the coordinator with by a, and this copy has by b"
    )
    desk.nodes.delete(PATH, -1, lambda found: None)
    taker.on_event(desk.nodes, PATH)
    tick()
    assert PART in taker.owned, "an operator took the record away"
    assert desk.nodes.holding().division == "by b"
    assert publisher.told[1:] == [""]


def another(nodes: Nodes, address: str, division: str, parts: int, session: int) -> Owners:
    owners = Owners("/shop", address, Held(), 1, division)
    owners.configure({"cache": ApplicationConfig()}, parts)
    owners.copies.measured((Position(0), Position(99)))
    owners.on_opened(nodes, session)
    return owners


@pytest.mark.parametrize("together", [False, True])
def test_copies_of_other_parts_do_not_share_an_application(together: bool) -> None:
    """Each has parts that the other lacks, of the same shards. Whoever came first to the first part serves
    all of it."""
    nodes = Nodes()
    one = another(nodes, "db-1", "by a in 1", 1, 1)
    if not together:
        settle(nodes, one)
    two = another(nodes, "db-2", "by a in 4", 4, 2)
    one.on_event(nodes, COPIES)
    settle(nodes, one, two)
    assert len({bool(one.owned), bool(two.owned)}) == 2
    assert one.owned or together
    assert len(two.owned) in (0, 4)


def settle(nodes: Nodes, *copies: Owners) -> None:
    for _ in range(9):
        nodes.answer()
        for owners in copies:
            owners.tick(nodes, later=True)
    nodes.answer()


def test_an_owner_whose_record_is_anothers_by_now_serves_no_more_whatever_shards_that_one_has() -> None:
    """An operator took the record away, and a copy that was set up otherwise came first."""
    desk = OwnerDesk("by a")
    desk.has(3)
    desk.nodes.delete(PATH, -1, lambda found: None)
    two = another(desk.nodes, "db-2", "by b", 1, 7)
    settle(desk.nodes, two)
    assert PART in two.owned
    desk.owners.on_event(desk.nodes, PATH)
    desk.tick()
    assert PART not in desk.owners.owned
    assert desk.publisher.gone
    assert "is on record in the coordinator with by b" in desk.publisher.told[-1]


@pytest.mark.parametrize("asked", ["written", "read"])
def test_an_application_that_goes_while_something_is_asked_of_it_is_forgotten(asked: str) -> None:
    desk = OwnerDesk()
    if asked == "written":
        desk.owners.changed(PART)
        desk.owners.tick(desk.nodes)
    else:
        desk.owners.on_event(desk.nodes, PATH)
    desk.owners.configure({}, 1)
    desk.nodes.answer()
    assert desk.owners.owned == {}


def test_what_was_asked_of_an_application_before_it_went_does_not_count_for_one_of_its_name() -> None:
    """It was deleted meanwhile, and begins anew."""
    desk = OwnerDesk()
    desk.has(3)
    desk.owners.on_event(desk.nodes, PATH)
    desk.owners.remove(desk.nodes, "cache")
    desk.owners.configure({}, 1)
    desk.owners.configure({"cache": ApplicationConfig()}, 1)
    desk.nodes.answer()
    assert desk.owners.owned == {}
    desk.tick(3)
    assert PART in desk.owners.owned
    assert desk.nodes.holding().kept == desk.publisher.begins(PART)
    assert not desk.nodes.holding().clean, "whoever worked for the one before may be at it still"


class Busy(Nodes):
    """Has so many calls under way that it answers others at once."""

    def get(self, path: str, then: Then, *, watch: bool = False) -> None:
        if len(self._answers) < 1_000:
            super().get(path, then, watch=watch)
        else:
            then(Found("connection-loss"))

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False) -> None:
        if len(self._answers) < 1_000:
            super().create(path, data, then, ephemeral=ephemeral)
        else:
            then(Found("connection-loss"))

    def answer(self) -> None:
        while self._answers:
            then, found = self._answers.popleft()
            then(found)


def test_thousands_of_parts_are_created_little_by_little() -> None:
    nodes = Busy()
    owners = Owners("/shop", "db-1", Held(), 1)
    owners.configure({f"app{at}": ApplicationConfig() for at in range(8)}, 250)
    owners.copies.measured((Position(0), Position(99)))
    owners.on_opened(nodes, 1)
    for _ in range(4):
        settle(nodes, owners)
    assert len(owners.owned) == 2_000


def test_who_owns_a_part_that_nobody_is_to_serve_goes_on_and_records_it() -> None:
    desk = OwnerDesk()
    desk.owners.configure({"cache": ApplicationConfig(copies=("db-2",))}, 1)
    desk.has(5)
    assert len(desk.nodes.holding().kept.flows) == 5
    assert PART in desk.owners.owned


def test_a_part_for_which_nobody_is_there_is_told_of() -> None:
    nodes = Nodes()
    publisher = Held()
    owners = Owners("/shop", "db-1", publisher, 1)
    owners.configure({"cache": ApplicationConfig(copies=("db-2", "db-3"))}, 1)
    owners.copies.measured((Position(0), Position(99)))
    owners.on_opened(nodes, 1)
    settle(nodes, owners)
    (told,) = publisher.told
    assert told.startswith("nobody serves part 0 of cache: of the copies that it names (db-2, db-3) none")
    owners.configure({"cache": ApplicationConfig(copies=("db-2", "db-1"))}, 1)
    settle(nodes, owners)
    assert PART in owners.owned
    assert publisher.told[1:] == [""]
