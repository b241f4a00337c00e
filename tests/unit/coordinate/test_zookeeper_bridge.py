"""The bridge to ZooKeeper, with a link that does what the test says: what is known, what is not, and what is
said of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from kazoo import exceptions

from qanat.coordinate.interface import Problem
from qanat.coordinate.messages import (
    Attach,
    Attached,
    Beat,
    Beaten,
    Call,
    Close,
    Detached,
    EventKind,
    Expired,
    Fired,
    Open,
    Opened,
    Operation,
    Watch,
)
from qanat.coordinate.zookeeper import Bridge, Found, LinkListener, ZooKeeperAddress
from qanat.coordinate.zookeeper.address import BadZooKeeperUrl
from qanat.coordinate.zookeeper.kazoo_link import problem_of

S = 1_000_000
TICK = S // 2


class Asked:
    def __init__(
        self, what: str, path: str, then: Callable[[Found], None], fire: Callable[[], None] | None
    ) -> None:
        self.what, self.path, self.then, self.fire = what, path, then, fire


class FakeLink:
    """Keeps what it is asked; the test answers."""

    def __init__(self, timeout_us: int, listener: LinkListener) -> None:
        self.timeout_us, self.listener = timeout_us, listener
        self.granted_us, self.session = timeout_us, 77
        self.asked: list[Asked] = []
        self.closed = False

    def _ask(
        self, what: str, path: str, then: Callable[[Found], None], fire: Callable[[], None] | None = None
    ) -> None:
        self.asked.append(Asked(what, path, then, fire))

    def create(
        self, path: str, data: bytes, then: Callable[[Found], None], *, ephemeral: bool, sequential: bool
    ) -> None:
        self._ask("create", path, then)

    def set(self, path: str, data: bytes, version: int, then: Callable[[Found], None]) -> None:
        self._ask("set", path, then)

    def delete(self, path: str, version: int, then: Callable[[Found], None]) -> None:
        self._ask("delete", path, then)

    def get(self, path: str, then: Callable[[Found], None], fire: Callable[[], None] | None) -> None:
        self._ask("get", path, then, fire)

    def children(self, path: str, then: Callable[[Found], None], fire: Callable[[], None] | None) -> None:
        self._ask("children", path, then, fire)

    def sync(self, path: str, then: Callable[[Found], None]) -> None:
        self._ask("sync", path, then)

    def close(self) -> None:
        self.closed = True

    def ended(self, within_s: float) -> bool:
        return self.closed

    def take(self) -> list[Asked]:
        taken, self.asked = self.asked, []
        return taken


class Room:
    """A bridge with a session, number 100, unless it is to be opened by the test."""

    def __init__(self, *, opened: bool = True, granted_us: int = 0) -> None:
        self.said: list[Any] = []
        self.links: list[FakeLink] = []
        self.bridge = Bridge(self._connect, self.said.append, root="/q", tick_us=TICK)
        self.bridge.on_message(Open(5, 2 * S))
        self.link.granted_us = granted_us or self.link.timeout_us
        if opened:
            self.begin(100)
            self.attach(1)

    def _connect(self, timeout_us: int, listener: LinkListener) -> FakeLink:
        self.links.append(FakeLink(timeout_us, listener))
        return self.links[-1]

    @property
    def link(self) -> FakeLink:
        return self.links[-1]

    def begin(self, number: int) -> None:
        self.link.listener.on_connected()
        self.link.take()[-1].then(Found(zxid=number))

    def attach(self, number: int, *watches: Watch, session: int = 100) -> None:
        self.bridge.on_message(Attach(session, number, watches))
        if self.link.asked:
            sync = self.link.asked.pop(0)
            assert sync.what == "sync", "what was asked before is over when it is answered"
            sync.then(Found())

    def beat(self, number: int) -> None:
        self.bridge.on_message(Beat(100, number))

    def set(self, number: int) -> Asked:
        self.bridge.on_message(Call(100, number, Operation.SET, "/x", b"", 3))
        return self.link.take()[-1]

    def take(self) -> list[Any]:
        taken = list(self.said)
        self.said.clear()
        return taken


def test_a_session_is_numbered_by_the_change_that_it_makes_and_lasts_a_tick_longer_at_zookeeper() -> None:
    room = Room(opened=False)
    assert room.link.timeout_us == 2 * S + TICK
    room.bridge.on_message(Open(5, 2 * S))
    assert len(room.links) == 1 and room.take() == [], "asked again, it is the same one"
    room.link.listener.on_connected()
    asked = room.link.take()
    assert [(each.what, each.path) for each in asked] == [
        ("create", "/q"),
        ("create", "/q/sessions"),
        ("set", "/q/sessions"),
    ]
    room.link.listener.on_suspended()
    asked[-1].then(Found(zxid=41))
    assert room.take() == [], "an answer of a connection that broke"
    room.begin(100)
    room.bridge.on_message(Open(5, 2 * S))
    assert room.take() == [Opened(5, 100, 2 * S)] * 2


@pytest.mark.parametrize(("granted_us", "lasts_us"), [(2 * S, 2 * S - TICK), (10 * S, 2 * S)])
def test_nobody_counts_on_more_than_was_granted_or_than_was_asked_for(granted_us: int, lasts_us: int) -> None:
    room = Room(opened=False, granted_us=granted_us)
    room.begin(100)
    assert room.take() == [Opened(5, 100, lasts_us)]


def test_a_grant_that_a_tick_uses_up_is_no_session(caplog: pytest.LogCaptureFixture) -> None:
    room = Room(opened=False, granted_us=TICK)
    with caplog.at_level(logging.ERROR):
        room.begin(100)
    assert room.take() == [] and "maxSessionTimeout" in caplog.text


def test_a_compare_and_set_whose_connection_breaks_is_unknown_whatever_is_heard_later() -> None:
    room = Room()
    asked = room.set(7)
    room.take()
    room.link.listener.on_suspended()
    assert room.take() == [Detached(100)], "by which a session counts all its calls as unknown"
    asked.then(Found(version=4))
    room.bridge.on_message(Call(100, 8, Operation.SET, "/x", b"", 3))
    assert room.take() == [] and room.link.asked == [], (
        "nothing is asked before the session has attached again"
    )
    room.attach(2)
    assert room.take() == [], "there is no connection"
    room.link.listener.on_connected()
    room.attach(2)
    assert room.take() == [Attached(100, 2)]
    room.set(9).then(Found(Problem.BAD_VERSION))
    (reply,) = room.take()
    assert (reply.number, reply.problem) == (9, "bad-version")


def test_what_changed_while_there_was_no_connection_fires_before_the_session_is_attached() -> None:
    room = Room()
    room.link.listener.on_suspended()
    room.link.listener.on_connected()
    room.take()
    room.attach(
        2,
        Watch(EventKind.DATA, "/same", 10, True),
        Watch(EventKind.DATA, "/changed", 10, True),
        Watch(EventKind.CHILDREN, "/gone", 10, True),
        Watch(EventKind.DATA, "/came", 0, False),
        Watch(EventKind.DATA, "/never", 0, False),
    )
    room.beat(1)
    missing = Found(Problem.NO_NODE)
    for asked, found in zip(
        room.link.take(), [Found(zxid=10), Found(zxid=11), missing, Found(zxid=12), missing]
    ):
        assert asked.fire is not None and asked.what in ("get", "children")
        asked.then(found)
    assert room.take() == [
        Fired(100, EventKind.DATA, "/changed"),
        Fired(100, EventKind.CHILDREN, "/gone"),
        Fired(100, EventKind.DATA, "/came"),
        Attached(100, 2),
    ]


def test_an_attachment_that_breaks_is_made_again() -> None:
    room = Room()
    room.link.listener.on_suspended()
    room.link.listener.on_connected()
    room.take()
    watch = Watch(EventKind.DATA, "/x", 10, True)
    room.attach(2, watch)
    first = room.link.take()
    room.attach(2, watch)
    assert room.link.asked == [], "it is under way"
    first[0].then(Found(Problem.CONNECTION_LOSS))
    room.attach(2, watch)
    room.link.take()[0].then(Found(zxid=10))
    assert room.take() == [Attached(100, 2)]


def test_a_heartbeat_counts_when_the_leader_has_answered_and_one_is_under_way_at_a_time() -> None:
    room = Room()
    room.take()
    room.beat(1)
    room.beat(2)
    (asked,) = room.link.take()
    assert (asked.what, asked.path) == ("sync", "/q")
    asked.then(Found())
    assert room.take() == [Beaten(100, 1)]
    room.beat(3)
    (asked,) = room.link.take()
    room.link.listener.on_suspended()
    room.link.listener.on_connected()
    room.attach(2)
    room.take()
    asked.then(Found())
    assert room.take() == [], "the connection on which it was asked is gone"
    room.beat(4)
    room.link.take()[0].then(Found(Problem.CONNECTION_LOSS))
    assert room.take() == []


def test_a_session_that_expired_says_nothing_more_and_the_next_is_another() -> None:
    room = Room()
    asked, first = room.set(7), room.link
    room.take()
    first.listener.on_lost()
    assert room.take() == [Expired(100)]
    asked.then(Found(version=4))
    assert room.take() == []
    room.beat(5)
    assert room.take() == [Expired(100)]
    room.bridge.on_message(Open(6, 2 * S))
    assert len(room.links) == 2
    room.begin(200)
    assert room.take() == [Opened(6, 200, 2 * S)]
    first.listener.on_suspended()
    first.listener.on_lost()
    assert room.take() == []


def test_a_session_that_ends_is_closed_at_zookeeper() -> None:
    room = Room()
    room.bridge.on_message(Close(100))
    assert room.link.closed
    room.take()
    room.beat(1)
    assert room.take() == [Expired(100)]
    other = Room()
    other.bridge.close()
    assert other.link.closed


def test_who_is_not_let_in_is_told_why_once_and_no_longer_when_he_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = Room(opened=False)

    def answer(*problems: Problem) -> str:
        for asked, problem in zip(room.link.take(), problems, strict=True):
            asked.then(Found(problem, zxid=100))
        return room.bridge.refusal

    room.link.listener.on_refused("a:1 is not trusted")
    assert room.bridge.refusal == "a:1 is not trusted"
    room.link.listener.on_connected()
    refused = answer(Problem.NO_AUTH, Problem.NO_AUTH, Problem.NO_NODE)
    assert refused.startswith("we may not make /q: check zookeeper.user")
    for _ in range(2):
        room.bridge.on_message(Open(5, 2 * S))
        refused = answer(Problem.NO_AUTH, Problem.NODE_EXISTS, Problem.NO_AUTH)
        assert refused.startswith("we may not change /q/sessions: ")
    assert room.take() == []
    assert [vars(each)["reason"][:16] for each in caplog.records if each.levelno == logging.ERROR] == [
        "a:1 is not trust",
        "we may not make ",
        "we may not chang",
    ]
    room.bridge.on_message(Open(5, 2 * S))
    assert answer(Problem.NO_AUTH, Problem.NODE_EXISTS, Problem.NONE) == ""
    room.attach(1)
    room.set(7).then(Found(Problem.NO_AUTH))
    assert room.bridge.refusal.startswith("we may not set /q/x: ")
    reply = room.take()[-1]
    assert (reply.number, reply.problem) == (7, "no-auth")


def test_paths_lie_below_the_root_and_owners_are_our_numbers() -> None:
    room = Room()
    room.take()
    room.bridge.on_message(Call(100, 1, Operation.CREATE, "/x-", sequential=True, ephemeral=True))
    room.bridge.on_message(Call(100, 2, Operation.CHILDREN, "/"))
    room.bridge.on_message(Call(100, 3, Operation.GET, "/x", watch=True))
    create, children, get = room.link.take()
    assert [each.path for each in (create, children, get)] == ["/q/x-", "/q", "/q/x"]
    create.then(Found(path="/q/x-0000000003", owner=77))
    get.then(Found(owner=78))
    assert [(reply.path, reply.owner) for reply in room.take()] == [("/x-0000000003", 100), ("/x", 78)]
    assert get.fire is not None
    get.fire()
    assert room.take() == [Fired(100, EventKind.DATA, "/x")]


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (exceptions.NoNodeError(), Problem.NO_NODE),
        (exceptions.BadVersionError(), Problem.BAD_VERSION),
        (exceptions.NodeExistsError(), Problem.NODE_EXISTS),
        (exceptions.SessionExpiredError(), Problem.SESSION_EXPIRED),
        (exceptions.ConnectionLoss(), Problem.CONNECTION_LOSS),
        (exceptions.ConnectionClosedError(), Problem.CONNECTION_LOSS),
        (exceptions.OperationTimeoutError(), Problem.CONNECTION_LOSS),
        (exceptions.SystemZookeeperError(), Problem.CONNECTION_LOSS),
        (exceptions.AuthFailedError(), Problem.CONNECTION_LOSS),
        (exceptions.NoAuthError(), Problem.NO_AUTH),
        (None, Problem.NONE),
    ],
)
def test_what_is_not_known_to_be_definite_may_have_happened(
    error: Exception | None, problem: Problem
) -> None:
    assert problem_of(error) is problem


def test_addresses() -> None:
    parsed = ZooKeeperAddress.parse("zookeeper://a:2182,b,[::1]:2183/shop/eu/")
    assert parsed == ((("a", 2182), ("b", 2181), ("::1", 2183)), "/shop/eu")
    assert str(parsed) == "zookeeper://a:2182,b:2181,[::1]:2183/shop/eu"
    assert ZooKeeperAddress.parse(str(parsed)) == parsed
    assert ZooKeeperAddress.parse("ZooKeeper://a").root == ""


@pytest.mark.parametrize(
    "text",
    [
        "qanat://a:1",
        "a:2181",
        "zookeeper://",
        "zookeeper://a,,b",
        "zookeeper://a:0",
        "zookeeper://a:x/",
        "zookeeper://a//b",
    ],
)
def test_what_is_no_address_is_told_so(text: str) -> None:
    with pytest.raises(BadZooKeeperUrl, match=r"zookeeper://|port"):
        ZooKeeperAddress.parse(text)


def test_a_password_in_an_address_is_not_printed() -> None:
    with pytest.raises(BadZooKeeperUrl, match=r"zookeeper\.user") as raised:
        ZooKeeperAddress.parse("zookeeper://ann:s3cret@a:1/x")
    assert "s3cret" not in str(raised.value)
