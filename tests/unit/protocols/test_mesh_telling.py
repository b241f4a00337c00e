"""Whom a member tells of its progress, and when: F neighbours, chosen anew at each shuffle."""

import pytest
from tests.unit.protocols.mesh_by_hand import PROXY, A, B, batch, client, events, news, notify

from qanat.kernel import Address
from qanat.protocols.mesh import MeshConfig, Notify
from qanat.protocols.views import Gossip

pytestmark = pytest.mark.paper("S7")


def test_who_does_not_get_on_asks_its_neighbours() -> None:
    made, context = client(config=MeshConfig(fanout=1))
    made.on_message(0, A, Gossip((), (), False))
    for first in (11, 21):
        made.on_message(0, A, news(first, first + 9))
        made.on_message(0, A, events(first, first + 9, batch(first, first + 9)))
        made.on_timer(0, "notify")
        context.casts = []
        made.on_timer(0, "shuffle")
    assert context.casts == [(A, notify(0, ask=True))]


@pytest.mark.paper("S8")
def test_who_asks_is_among_the_f_until_the_next_shuffle() -> None:
    made, context = client(config=MeshConfig(fanout=1))
    made.on_message(0, A, Gossip((), (), False))
    made.on_message(0, A, notify(20))
    made.on_message(0, A, events(1, 10, batch(1, 10)))
    made.on_message(0, B, notify(5, ask=True))
    context.casts = []
    made.on_message(0, A, events(11, 20, batch(11, 20)))
    made.on_timer(0, "notify")
    assert context.casts == [(B, news(11, 20, cnt=20))]
    made.on_timer(0, "shuffle")
    assert made.notifier.chosen == [A]


@pytest.mark.paper("S8")
def test_progress_is_told_at_once_to_f_neighbours_and_then_once_per_interval() -> None:
    made, context = client(config=MeshConfig(fanout=2))
    members = tuple(Address(f"eu/client-{number}") for number in range(10))
    made.on_message(0, A, Gossip(members, (1,) * 10, False))
    made.on_message(0, A, notify(30))
    context.notified()
    made.on_message(0, A, events(1, 10, batch(1, 10), cnt=30))
    first = context.notified()
    assert len(set(first)) == 2
    made.on_message(0, A, events(11, 30, batch(11, 20), cnt=30))
    made.on_message(0, B, events(21, 30, batch(21, 30), cnt=30))
    assert context.notified() == []
    made.on_timer(0, "notify")
    assert context.notified() == first
    made.on_timer(0, "notify")
    assert context.notified() == []


@pytest.mark.paper("S8")
def test_a_shuffle_chooses_others_and_asks_them_when_there_was_no_news() -> None:
    made, context = client(config=MeshConfig(fanout=2))
    members = tuple(Address(f"eu/client-{number}") for number in range(10))
    made.on_message(0, A, Gossip(members, (1,) * 10, False))
    context.casts = []
    chosen = set()
    pauses = []
    for _ in range(8):
        made.on_timer(0, "shuffle")
        assert all(message.ask for _, message in context.casts if isinstance(message, Notify))
        told = context.notified()
        assert PROXY not in told
        assert len(told) == 2
        chosen.add(tuple(told))
        pauses.append(context.timers["shuffle"])
    assert len(chosen) > 4
    assert pauses == [60_000, 120_000, 240_000, 480_000, 960_000, 1_000_000, 1_000_000, 1_000_000]
    made.on_message(0, A, notify(10))
    made.on_message(0, A, events(1, 10, batch(1, 10)))
    assert context.timers["shuffle"] == 30_000
    context.notified()
    made.on_timer(0, "shuffle")
    assert context.notified() == []
    assert context.timers["shuffle"] == 30_000


def test_who_asks_and_is_behind_is_told() -> None:
    made, context = client()
    made.on_message(0, A, notify(10))
    made.on_message(0, A, events(1, 10, batch(1, 10)))
    context.notified()
    made.on_message(0, B, notify(10, ask=True))
    made.on_message(0, B, notify(9))
    assert context.notified() == []
    made.on_message(0, B, notify(9, ask=True))
    assert context.notified() == [B]
