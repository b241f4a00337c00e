"""The record of a part in the coordinator: however it is written it reads the same; one that does not fit is told of, once, and not tried over and over."""

from __future__ import annotations

import random
import uuid
import zlib
from collections import deque
from typing import Any, NamedTuple

import msgspec
import pytest

from qanat.events.errors import RemoteError
from qanat.events.position import Position
from qanat.protocols.publisher import ownership
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.holder import Part
from qanat.protocols.publisher.holdings import (
    CROWDED_BYTES,
    Holding,
    Registration,
    decode_holding,
    encode_holding,
    encode_registration,
)
from qanat.protocols.publisher.ownership import PATIENCE_TICKS, Owners
from qanat.protocols.publisher.records import Kept, KeptFlow
from qanat.protocols.publisher.witness import Witness
from qanat.protocols.registry import Then

pytestmark = pytest.mark.paper("W10")
PART: Part = ("cache", 0)
PATH, COPIES = "/shop/applications/cache/0", "/shop/copies"


def kept(shards: int, places: int = 1) -> Kept:
    flows = [
        KeptFlow(
            0,
            Position(10**12 + 977 * place, 3),
            None,
            Witness(Position(10**12 + place, 0), zlib.crc32(b"%d" % place).to_bytes(24, "big")),
        )
        for place in range(places)
    ]
    found = {str(number): flows[number % places] for number in range(shards)}
    return Kept(
        {0: Position(7)}, {0: (Position(1), Position(2))}, found, seen={0: Witness(Position(6), b"w")}
    )


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


class Found(NamedTuple):
    problem: str = ""
    data: bytes = b""
    version: int = 0
    children: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problem


class Nodes:
    """A coordinator: answers come when a test says so."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.sets = 0
        self.full = False
        self._answers: deque[tuple[Then, Found]] = deque()

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool = False) -> None:
        problem = "node-exists" if path in self.nodes else ""
        self.nodes.setdefault(path, (data, 0))
        self._answers.append((then, Found(problem)))

    def set(self, path: str, data: bytes, version: int, then: Then) -> None:
        self.sets += path == PATH
        now = self.nodes[path][1]
        if self.full or version not in (-1, now):
            self._answers.append((then, Found("bad-arguments" if self.full else "bad-version")))
            return
        self.nodes[path] = (data, now + 1)
        self._answers.append((then, Found(version=now + 1)))

    def delete(self, path: str, version: int, then: Then) -> None:
        del self.nodes[path]

    def get(self, path: str, then: Then, *, watch: bool = False) -> None:
        found = self.nodes.get(path)
        self._answers.append((then, Found("no-node") if found is None else Found("", *found)))

    def children(self, path: str, then: Then, *, watch: bool = False) -> None:
        names = (each.removeprefix(f"{path}/") for each in self.nodes if each.startswith(f"{path}/"))
        self._answers.append((then, Found(children=tuple(names))))

    def answer(self) -> None:
        for _ in range(100):
            if not self._answers:
                return
            then, found = self._answers.popleft()
            then(found)
        pytest.fail("they ask and ask")

    def holding(self) -> Holding:
        return decode_holding(self.nodes[PATH][0])


class Publisher:
    """What owners ask and tell."""

    def __init__(self) -> None:
        self.now = kept(3)
        self.told: list[str] = []
        self.gone = False

    def begins(self, part: Part) -> Kept:
        return Kept({0: Position(0)})

    def state(self, part: Part) -> Kept:
        return self.now

    def needs(self, part: Part) -> tuple[Position, Position]:
        return Position(0), Position(0)

    def troubled(self, part: Part, why: str) -> None:
        self.told.append(why)

    def lost(self, part: Part) -> None:
        self.gone = True

    def released(self, part: Part) -> bool:
        return True

    def waits(self, part: Part) -> bool:
        return False

    def acquired(self, part: Part, kept: Kept, **_: Any) -> None: ...
    def keeps(self, part: Part) -> None: ...


class Desk:
    """An owner of a part whose record has room for 4,000 bytes, and for more shards up to 3,000."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, division: str = "") -> None:
        monkeypatch.setattr(ownership, "NODE_BYTES", 4_000)
        monkeypatch.setattr(ownership, "CROWDED_BYTES", 3_000)
        self.nodes, self.publisher = Nodes(), Publisher()
        self.owners = Owners("/shop", "db-1", self.publisher, 1, division)
        self.owners.configure({"cache": ApplicationConfig(copies=("db-2", "db-1"))}, 1)
        self.owners.copies.measured((Position(0), Position(99)))
        self.owners.on_opened(self.nodes, 1)
        self.tick(4)
        assert PART in self.owners.owned

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.nodes.answer()
            self.owners.tick(self.nodes, later=True)
            self.nodes.answer()

    def has(self, shards: int) -> None:
        self.publisher.now = kept(shards)
        self.owners.changed(PART)
        self.tick()


def test_a_part_whose_record_becomes_large_shall_have_no_more_shards_and_may_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch)
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
    desk = Desk(monkeypatch)
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
    desk = Desk(monkeypatch)
    desk.nodes.full = True
    sets = desk.nodes.sets
    for shards in range(4, 24):
        desk.has(shards)
    assert desk.nodes.sets == sets + 1
    assert desk.owners.refused == 1
    desk.nodes.full = False
    desk.tick(PATIENCE_TICKS)
    assert desk.nodes.holding().kept == kept(23)


def preferred_is_back(desk: Desk, division: str = "") -> None:
    said = Registration("db-2", Position(0), Position(99), division=division)
    desk.nodes.nodes[f"{COPIES}/db-2@5"] = (encode_registration(said), 0)
    desk.owners.on_event(desk.nodes, COPIES)
    desk.nodes.answer()


@pytest.mark.parametrize("known", [False, True])
def test_a_part_whose_record_does_not_fit_stays_where_its_datamarkers_are(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Whether that is known before, or noticed when it is to be handed over."""
    desk = Desk(monkeypatch)
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
    desk = Desk(monkeypatch)
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
    desk = Desk(monkeypatch)
    desk.has(45)
    monkeypatch.setattr(ownership, "NODE_BYTES", 1_000)
    publisher = Publisher()
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


@pytest.mark.parametrize("division", ["", "by a", "by b"])
def test_a_part_is_given_to_no_copy_that_makes_other_shards(
    monkeypatch: pytest.MonkeyPatch, division: str
) -> None:
    """An older one does not say how it makes them."""
    desk = Desk(monkeypatch, "by a")
    desk.has(3)
    preferred_is_back(desk, division)
    desk.tick(9)
    assert desk.nodes.holding().owner.startswith("db-1" if division == "by b" else "db-2")
    assert desk.nodes.holding().division == "by a"


def test_nor_does_one_take_over_what_is_on_record_of_others_and_everybody_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what was behind in one shard, some may lie before the datamarker of another."""
    desk = Desk(monkeypatch, "by a")
    desk.has(3)
    publisher = Publisher()
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
