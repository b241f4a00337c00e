"""Owners and copies of a publisher, driven by hand: a coordinator that answers when a test says so, and what
is asked and told."""

from __future__ import annotations

import zlib
from collections import deque
from typing import Any, NamedTuple

import pytest
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.publisher_by_hand import NOW, Desk

from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.holder import Part
from qanat.protocols.publisher.holdings import Holding, Registration, decode_holding, encode_registration
from qanat.protocols.publisher.ownership import Owners
from qanat.protocols.publisher.reading import Measured
from qanat.protocols.publisher.records import Kept, KeptFlow
from qanat.protocols.publisher.witness import Witness
from qanat.protocols.registry import CoordinatorSession, Then

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


class Held:
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


class OwnerDesk:
    """The owner of a part."""

    def __init__(self, division: str = "") -> None:
        self.nodes, self.publisher = Nodes(), Held()
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


def preferred_is_back(desk: OwnerDesk, division: str = "") -> None:
    said = Registration("db-2", Position(0), Position(99), division=division)
    desk.nodes.nodes[f"{COPIES}/db-2@5"] = (encode_registration(said), 0)
    desk.owners.on_event(desk.nodes, COPIES)
    desk.nodes.answer()


class Session(Nodes, CoordinatorSession):
    """Of a copy, with that coordinator."""

    above = 0

    def leased(self, now_us: int) -> bool:
        return True

    def start(self) -> None: ...
    def close(self) -> None: ...
    def gone(self, session: int) -> None: ...


class CopyDesk(Desk):
    """A copy whose log has 0 to 99, and its subscribers."""

    def __init__(self, session: Session | None = None, address: str = "db-1", **more: Any) -> None:
        self.nodes = session or Session()
        self.context = InOrder(Address(address))
        application = ApplicationConfig(start="10:0", copies=more.get("copies", ("db-1", "db-2")))
        config = PublisherConfig(parts=more.get("parts", 1))
        self.machine: CopyPublisher = CopyPublisher(
            self.context,
            config,
            {"cache": application},
            lambda context, listener: self.nodes,
            "/shop",
            sharding=more.get("sharding", ""),
        )
        self.machine.on_start(NOW, [])
        self.machine.on_request(NOW, Measured(Position(0), Position(99)))
        self.machine.on_opened(len(self.nodes.nodes) + 1)
        self.sessions: dict[str, int] = {}
        self.tick(5)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.nodes.answer()
            self.timer("owners/tick")
        self.nodes.answer()

    def another(self, oldest: int, newest: int) -> None:
        """Copy db-2 is there, and its log reaches from here to there."""
        said = Registration("db-2", Position(oldest), Position(newest))
        self.nodes.nodes[f"{COPIES}/db-2@99"] = (encode_registration(said), 0)
        self.machine.on_event("changed", COPIES)
        self.machine.on_event("changed", f"{COPIES}/db-2@99")
        self.tick()
