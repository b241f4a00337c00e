"""The record of a part in the coordinator: however it is written it reads the same; one that does not fit is
told of, once, and not tried over and over."""

from __future__ import annotations

import random
import uuid

import msgspec
import pytest
from tests.unit.protocols.copies_by_hand import COPIES, PART, Held, OwnerDesk, kept, preferred_is_back

from qanat.events.errors import RemoteError
from qanat.events.position import Position
from qanat.protocols.publisher import ownership
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.holdings import (
    CROWDED_BYTES,
    Holding,
    decode_holding,
    encode_holding,
)
from qanat.protocols.publisher.ownership import PATIENCE_TICKS, Owners

pytestmark = pytest.mark.paper("W10")


@pytest.mark.parametrize(("shards", "places"), [(0, 1), (999, 5), (1_000, 1), (2_500, 40)])
def test_a_record_reads_as_it_was_written(shards: int, places: int) -> None:
    holding = Holding("db-1@3", False, kept(shards, places), 600)
    assert decode_holding(encode_holding(holding)) == holding
    assert decode_holding(msgspec.msgpack.encode(holding)) == holding, (
        "as it lay there before records were packed"
    )


def test_as_many_shards_as_an_application_may_have_fit_or_half_of_them_if_chance_named_them() -> None:
    assert len(encode_holding(Holding("db-1@3", True, kept(65_536, 1_000)))) < CROWDED_BYTES / 2
    rng, many = random.Random(1), kept(34_000, 1_000)
    named = {str(uuid.UUID(int=rng.getrandbits(128))): flow for flow in many.flows.values()}
    holding = Holding("db-1@3", True, msgspec.structs.replace(many, flows=named))
    assert len(encode_holding(holding)) < CROWDED_BYTES


def test_a_packed_record_that_is_cut_short_is_not_taken_for_another() -> None:
    data = encode_holding(Holding("db-1@3", True, kept(2_000)))
    with pytest.raises(RemoteError, match="cut short"):
        decode_holding(data[:-9])


def small(monkeypatch: pytest.MonkeyPatch) -> OwnerDesk:
    """The owner of a part whose record has room for 4,000 bytes, and for more shards up to 3,000."""
    monkeypatch.setattr(ownership, "NODE_BYTES", 4_000)
    monkeypatch.setattr(ownership, "CROWDED_BYTES", 3_000)
    return OwnerDesk()


def test_a_part_whose_record_becomes_large_shall_have_no_more_shards_and_may_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = small(monkeypatch)
    desk.has(3)
    assert desk.publisher.told == []
    desk.has(40)
    (told,) = desk.publisher.told
    assert told.startswith("part 0 of cache has 40 shards, as many as")
    assert "publisher.parts" in told
    assert len(desk.nodes.holding().kept.flows) == 40, "it is written all the same"
    desk.has(41)
    assert len(desk.publisher.told) == 1, "it is told once"
    desk.has(3)
    assert desk.publisher.told[1:] == [""]


def test_a_record_that_does_not_fit_is_not_tried_over_and_over_and_what_was_written_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = small(monkeypatch)
    desk.has(3)
    sets = desk.nodes.sets
    desk.has(100)
    assert desk.nodes.sets == sets
    assert [text[:29] for text in desk.publisher.told] == ["part 0 of cache has 100 shard"]
    assert "not written" in desk.publisher.told[0]
    for _ in range(20):
        desk.owners.changed(PART)
        desk.tick()
    assert desk.owners.refused == 1
    assert desk.nodes.holding().kept == kept(3)
    desk.has(5)
    desk.tick(PATIENCE_TICKS)
    assert desk.nodes.holding().kept == kept(5), "as soon as there is room"
    assert desk.publisher.told[1:] == [""]


def test_nor_is_what_the_coordinator_itself_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = small(monkeypatch)
    desk.nodes.full = True
    sets = desk.nodes.sets
    for shards in range(4, 24):
        desk.has(shards)
    assert desk.nodes.sets == sets + 1
    assert desk.owners.refused == 1
    desk.nodes.full = False
    desk.tick(PATIENCE_TICKS)
    assert desk.nodes.holding().kept == kept(23)


@pytest.mark.parametrize("known", [False, True])
def test_a_part_whose_record_does_not_fit_stays_where_its_datamarkers_are(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Whether that is known before, or noticed when it is to be handed over."""
    desk = small(monkeypatch)
    desk.has(3)
    if known:
        desk.has(100)
    preferred_is_back(desk)
    desk.publisher.now = kept(100)
    desk.tick(PATIENCE_TICKS + 9)
    assert desk.nodes.holding().owner.startswith("db-1")
    desk.publisher.now = kept(5)
    desk.tick(2 * PATIENCE_TICKS)
    assert desk.nodes.holding().owner == "db-2@5", "when there is room"
    assert desk.nodes.holding().kept == kept(5)


def test_unless_it_cannot_be_served_there_then_it_is_handed_over_as_it_is_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The datamarkers lag, and never lead."""
    desk = small(monkeypatch)
    desk.has(3)
    desk.has(100)
    desk.owners.copies.measured(None)
    preferred_is_back(desk)
    desk.tick(PATIENCE_TICKS)
    found = desk.nodes.holding()
    assert (found.owner, found.clean) == ("db-2@5", True)
    assert found.kept == kept(3)
    assert desk.publisher.gone
    assert PART not in desk.owners.owned


def test_who_takes_over_puts_its_name_into_a_record_that_has_no_room_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = small(monkeypatch)
    desk.has(45)
    monkeypatch.setattr(ownership, "NODE_BYTES", 1_000)
    publisher = Held()
    taker = Owners("/shop", "db-9-of-a-long-name", publisher, 1)
    taker.configure({"cache": ApplicationConfig()}, 1)
    taker.copies.measured((Position(0), Position(99)))
    del desk.nodes.nodes[f"{COPIES}/{desk.owners.me}"]
    taker.on_opened(desk.nodes, 7)
    for _ in range(4):
        desk.nodes.answer()
        taker.tick(desk.nodes, later=True)
    desk.nodes.answer()
    assert PART in taker.owned
    assert desk.nodes.holding().kept == kept(45)
    assert publisher.told == []
