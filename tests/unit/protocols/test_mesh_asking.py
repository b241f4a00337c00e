"""What a client of the mesh asks its neighbours for, and how it takes the answers."""

import pytest
from tests.unit.protocols.mesh_by_hand import OTHER, PROXY, STREAM, A, B, batch, client, events, news, notify

from qanat.events.tombstones import tombstone
from qanat.protocols.mesh import Events, MeshConfig, Notify, Request
from qanat.protocols.views import Gossip

pytestmark = pytest.mark.paper("S7")


def test_a_notify_is_answered_by_a_request_for_what_is_new() -> None:
    made, context = client()
    made.on_message(0, A, notify(10))
    made.on_message(0, B, notify(10))
    made.on_message(0, B, notify(15))
    made.on_message(0, B, Notify((OTHER,), (5,), False))
    assert context.take() == [(A, Request(STREAM, 1, 10)), (B, Request(STREAM, 11, 15))]


def test_of_a_leading_neighbour_only_the_news_are_asked_and_the_gap_of_whoever_has_it_as_news() -> None:
    made, context = client()
    made.on_message(0, A, news(91, 100, cnt=100))
    assert context.take() == [(A, Request(STREAM, 91, 100))]
    made.on_message(0, B, news(41, 60))
    made.on_message(0, B, news(55, 70))
    assert context.take() == [(B, Request(STREAM, 41, 60)), (B, Request(STREAM, 61, 70))]
    made.on_message(0, A, events(91, 100, batch(91, 100)))
    assert context.delivered == []
    made.on_message(0, B, Request(STREAM, 91, 100))
    [(to, answer)] = context.take()
    assert to == B
    assert isinstance(answer, Events)
    assert answer.batches[0].first == 91, "what is early here is there for others"


def test_older_events_are_asked_for_once_several_neighbours_have_them_but_not_of_the_proxy() -> None:
    made, context = client(config=MeshConfig(older_after=3, neighbour_requests=2))
    made.on_message(0, A, Gossip((), (), False))
    for first in (91, 101, 111):
        made.on_message(0, PROXY, news(first, first + 9, cnt=first + 9))
    assert [request for to, request in context.take() if to == PROXY] == [
        Request(STREAM, 91, 100),
        Request(STREAM, 101, 110),
    ]
    for _ in range(2):
        made.on_message(0, A, news(81, 90, cnt=90))
    assert context.take() == [(A, Request(STREAM, 81, 90))]
    made.on_message(0, B, news(86, 90, cnt=90))
    assert context.take() == [(B, Request(STREAM, 1, 80))]


def test_news_of_a_busy_neighbour_are_asked_for_when_it_has_answered() -> None:
    made, context = client(config=MeshConfig(neighbour_requests=1))
    made.on_message(0, A, news(1, 10))
    made.on_message(0, A, news(11, 20))
    made.on_message(0, A, news(21, 30))
    made.on_message(0, B, news(21, 30))
    assert context.take() == [(A, Request(STREAM, 1, 10)), (B, Request(STREAM, 21, 30))]
    made.on_message(0, A, events(1, 10, batch(1, 10)))
    assert context.take() == [(A, Request(STREAM, 11, 20))]
    made.on_message(0, A, events(11, 20, batch(11, 20)))
    assert context.take() == []
    assert made.streams[STREAM].told == {}


def test_what_comes_too_early_waits_its_turn() -> None:
    made, context = client()
    made.on_message(0, A, notify(10))
    made.on_message(0, B, notify(20))
    made.on_message(0, B, events(11, 20, batch(11, 20)))
    assert context.delivered == []
    assert made.early_bytes > 0
    made.on_message(0, A, events(1, 10, batch(1, 10)))
    assert context.delivered == [(1, 10), (11, 20)]
    assert made.early_bytes == 0


def test_an_answer_is_no_notify() -> None:
    """Else whoever was fed once would ask on for ever, and a member would feed more than its F."""
    made, context = client()
    made.on_message(0, A, notify(10))
    context.take()
    made.on_message(0, A, events(1, 10, batch(1, 10), cnt=25))
    assert context.take() == []


def test_a_batch_that_overlaps_is_cut_for_the_application_and_whole_for_neighbours() -> None:
    made, context = client()
    made.on_message(0, A, notify(20))
    made.on_message(0, A, events(1, 20, batch(1, 10), batch(6, 20)))
    assert context.delivered == [(1, 10), (11, 20)]
    context.take()
    made.on_message(0, B, Request(STREAM, 15, 20))
    [(to, answer)] = context.take()
    assert to == B
    assert isinstance(answer, Events)
    assert [(one.first, one.last) for one in answer.batches] == [(6, 20)]
    assert (answer.nxt, answer.upto, answer.cnt) == (15, 20, 20)


def test_a_tombstone_may_reach_back_over_what_was_delivered() -> None:
    made, context = client()
    made.on_message(0, A, notify(20))
    made.on_message(0, A, events(1, 20, batch(1, 10), tombstone(STREAM, 1, 20)))
    assert context.delivered == [(1, 10), (1, 20)]
    assert made.streams[STREAM].cnt == 20


def test_requests_under_way_are_bounded() -> None:
    made, context = client(config=MeshConfig(requests=3, neighbour_requests=2, request_events=5))
    for _ in range(5):
        made.on_message(0, A, notify(100))
    assert context.take() == [(A, Request(STREAM, 1, 5)), (A, Request(STREAM, 6, 10))]
    for _ in range(5):
        made.on_message(0, B, notify(100))
    assert context.take() == [(B, Request(STREAM, 11, 15))]


def test_early_events_are_bounded_and_what_found_no_room_comes_again() -> None:
    size = batch(11, 20).virtual_size
    made, context = client(config=MeshConfig(early_bytes=size))
    made.on_message(0, A, notify(10))
    made.on_message(0, B, notify(30))
    context.take()
    made.on_message(0, B, events(11, 30, batch(11, 20), batch(21, 30)))
    assert made.early_bytes == size
    assert context.take() == [(PROXY, Request(STREAM, 21, 30))]
