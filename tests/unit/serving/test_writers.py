"""Who may publish under a source."""

from typing import cast

import pytest

from qanat.events.batch import Batch
from qanat.runtime.connection import Connection
from qanat.serving.writers import SourceMoved, SourceTaken, Writers
from qanat.wire.control import Identity

OURS = [Batch.build(1, [b"x"], source="ours", position=1)]


class Client:
    """A connection, as far as writers look at it."""

    def __init__(self, name: str = "ours") -> None:
        self.peer = Identity(name)


def client(name: str = "ours") -> Connection:
    return cast(Connection, Client(name))


def publish(writers: Writers, connection: Connection, what: list[Batch]) -> None:
    writers.check(connection, what)
    writers.took(connection, what)


def test_the_last_who_opened_takes_over_with_its_first_publish() -> None:
    writers, former, later = Writers(), client(), client("other")
    writers.opened(former, "ours")
    publish(writers, former, OURS)
    writers.opened(later, "ours")
    publish(writers, former, OURS)
    with pytest.raises(SourceMoved):  # the former went on since
        publish(writers, later, OURS)
    writers.opened(later, "ours")
    publish(writers, later, OURS)
    with pytest.raises(SourceTaken):
        publish(writers, former, OURS)
    writers.forget(later)
    with pytest.raises(SourceTaken):  # it has left, and its events are there
        publish(writers, former, OURS)
    writers.opened(former, "ours")
    publish(writers, former, OURS)
    assert not Writers().several


def test_who_only_opened_asks_again_when_another_came_and_went() -> None:
    writers, idle, hostile = Writers(), client(), client()
    writers.opened(idle, "ours")
    writers.opened(hostile, "ours")
    publish(writers, hostile, OURS)
    writers.forget(hostile)
    with pytest.raises(SourceMoved):
        publish(writers, idle, OURS)
    writers.opened(idle, "ours")
    publish(writers, idle, OURS)


def test_what_one_s_own_earlier_connection_says_late_is_no_other_s() -> None:
    writers, earlier, now = Writers(), client(), client()
    writers.opened(earlier, "ours")
    writers.opened(now, "ours")
    publish(writers, earlier, OURS)
    publish(writers, now, OURS)
    with pytest.raises(SourceTaken):
        publish(writers, earlier, OURS)
    writers.forget(earlier)
    publish(writers, now, OURS)
    assert not writers.several


def test_without_opening_nobody_publishes_under_what_another_has_open() -> None:
    writers, owner, stranger = Writers(), client(), client("stranger")
    publish(writers, stranger, OURS)
    writers.opened(owner, "ours")
    with pytest.raises(SourceTaken):
        publish(writers, stranger, OURS)
    writers.forget(owner)
    publish(writers, stranger, OURS)


def test_what_was_refused_takes_nothing_over() -> None:
    writers, owner, hostile = Writers(), client(), client()
    writers.opened(owner, "ours")
    writers.opened(hostile, "ours")
    writers.check(hostile, OURS)  # and then its position is refused
    writers.forget(hostile)
    publish(writers, owner, OURS)
