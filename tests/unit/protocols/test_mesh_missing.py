"""What does not come: left out of an answer, late, lost with a connection; it is asked for again, at last of
the proxy."""

import pytest
from tests.unit.protocols.mesh_by_hand import PROXY, STREAM, A, B, batch, client, events, news, notify

from qanat.protocols.mesh import MeshConfig, Request
from qanat.protocols.views import Gossip, UseProxy

pytestmark = pytest.mark.paper("S7")


def test_a_gap_that_nobody_tells_of_is_asked_of_the_proxy_in_the_end() -> None:
    made, context = client()
    made.on_message(0, A, news(11, 20))
    made.on_message(0, A, events(11, 20, batch(11, 20)))
    context.take()
    for _ in range(5):
        made.on_timer(0, "late")
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]
    made.on_message(0, PROXY, events(1, 10, batch(1, 10)))
    assert context.delivered == [(1, 10), (11, 20)]


def test_exactly_what_an_answer_leaves_out_is_asked_of_the_proxy() -> None:
    made, context = client()
    made.on_message(0, A, notify(30))
    context.take()
    made.on_message(0, A, events(1, 30, batch(21, 30), cnt=30))
    assert context.take() == [(PROXY, Request(STREAM, 1, 20))]
    made.on_message(0, PROXY, events(1, 20, batch(1, 20), cnt=30))
    assert context.delivered == [(1, 20), (21, 30)]
    assert made.streams[STREAM].asked == {}


def test_an_answer_that_ended_for_want_of_room_is_asked_on_at_the_same_neighbour() -> None:
    made, context = client()
    made.on_message(0, A, notify(30))
    context.take()
    made.on_message(0, A, events(1, 10, batch(1, 10), cnt=30))
    assert context.take() == [(A, Request(STREAM, 11, 30))]


def test_a_late_neighbour_is_given_up_for_the_proxy_and_the_proxy_is_asked_again() -> None:
    made, context = client(config=MeshConfig(proxy_answers=10))
    made.on_message(0, A, notify(10))
    context.take()
    for _ in range(4):
        made.on_timer(0, "late")
    assert context.take() == []
    made.on_timer(0, "late")
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]
    for _ in range(9):
        made.on_timer(0, "late")
    assert context.take() == []
    made.on_timer(0, "late")
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]
    made.on_message(0, A, events(1, 10, batch(1, 10)))
    assert context.delivered == [(1, 10)]


def test_what_a_late_neighbour_was_asked_for_the_next_is_asked_that_has_it() -> None:
    made, context = client()
    made.on_message(0, A, notify(10))
    context.take()
    made.on_timer(0, "late")
    made.on_message(0, B, news(11, 20, cnt=10))
    assert context.take() == [(B, Request(STREAM, 11, 20))]
    made.on_timer(0, "late")
    made.on_message(0, B, news(11, 20, cnt=10))
    assert context.take() == [(B, Request(STREAM, 1, 10))]


def test_a_broken_connection_is_given_up_at_once() -> None:
    made, context = client()
    made.on_message(0, A, Gossip((), (), False))
    made.on_message(0, A, notify(10))
    context.take()
    made.on_link_down(0, A)
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]
    assert A not in made.membership.view
    made.on_link_down(0, PROXY)
    assert context.take() == []
    made.on_timer(0, "late")
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]


def test_a_proxy_that_lacks_it_is_not_asked_in_a_tight_loop() -> None:
    made, context = client()
    made.on_message(0, PROXY, notify(10))
    context.take()
    made.on_message(0, PROXY, events(1, 10, cnt=0))
    assert context.take() == []
    made.on_timer(0, "late")
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]


def test_an_answer_about_nothing_is_not_asked_on() -> None:
    made, context = client()
    made.on_message(0, A, notify(10))
    context.take()
    made.on_message(0, A, events(1, 0))
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]


def test_a_new_proxy_is_asked_from_then_on() -> None:
    made, context = client()
    made.on_request(0, UseProxy(B))
    made.on_message(0, A, notify(10))
    context.take()
    made.on_link_down(0, A)
    assert context.take() == [(B, Request(STREAM, 1, 10))]
