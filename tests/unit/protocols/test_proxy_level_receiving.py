"""From whom a proxy takes a stream: the rule of expectations, sources that break, stall, lie or have dropped
it."""

from __future__ import annotations

import random

import pytest
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.proxy_level_by_hand import OURS, THEIRS, S, X, Y, Z, advertise, proxy, theirs

from qanat.events.batch import Batch, Kind
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.proxy_level import (
    Ack,
    Advanced,
    Events,
    ProxyLevel,
    ProxyLevelConfig,
    Publish,
    Streams,
    Subscribe,
    Unserved,
    Unsubscribe,
)
from qanat.protocols.proxy_level.receiving import switches


@pytest.mark.paper("S5")
@pytest.mark.parametrize(
    ("counter", "seq", "elapsed_us", "c_event_us", "expected"),
    [
        (111, 100, S // 10, S, True),  # C = 1 event·s after 0.1 s: more than 10 events
        (110, 100, S // 10, S, False),
        (102, 100, S, S, True),
        (101, 100, S, S, False),
        (101, 100, S + 1, S, True),
        (100, 100, 3600 * S, S, False),  # no time makes up for no lead
        (10**9, 100, 0, S, False),  # C/0 is infinite
        (101, 100, 1, 0, True),  # C = 0 switches at the slightest lead
        (90, 100, 3600 * S, 0, False),
    ],
)
def test_the_rule(counter: int, seq: int, elapsed_us: int, c_event_us: int, expected: bool) -> None:
    assert switches(counter, seq, elapsed_us, c_event_us) is expected


@pytest.mark.paper("S5")
def test_figure_2_of_the_paper() -> None:
    """Z takes s from Y; the link goes down; X advertises more than Y last did, and gets the subscription."""
    made, context = proxy()
    advertise(made, Y, 3, S)
    assert context.take("send") == [(Y, Subscribe(THEIRS, 0, 1))]
    made.on_message(0, Y, Events(THEIRS, 1, (theirs(1, 3),)))
    assert context.take("send") == [(Y, Ack(THEIRS, 1, 3))]
    assert context.take("deliver") == [Advanced(THEIRS, 1, 3)]
    advertise(made, Z, 3, 2 * S)
    advertise(made, Z, 4, 2 * S)
    assert context.take("send") == []  # one event ahead, after one second, with C = 1: not yet
    advertise(made, Z, 5, 2 * S)
    assert context.take("send") == [(Y, Unsubscribe(THEIRS, 1)), (Z, Subscribe(THEIRS, 3, 2))]
    made.on_message(0, Y, Events(THEIRS, 1, (theirs(4, 9),)))  # was still under way
    made.on_message(0, Z, Events(THEIRS, 1, (theirs(4, 9),)))
    assert made.history.counter(THEIRS) == 3
    made.on_message(0, Z, Events(THEIRS, 2, (theirs(2, 5),)))  # as it lies there: begins earlier
    assert made.history.counter(THEIRS) == 5
    assert context.take("deliver") == [Advanced(THEIRS, 4, 5)]


@pytest.mark.paper("S5")
def test_the_source_itself_refreshes_only_by_getting_on() -> None:
    made, _ = proxy()
    advertise(made, Y, 3, S)
    advertise(made, Y, 3, 5 * S)
    expects = made.receiving.expects[THEIRS]
    assert (expects.seq, expects.time_us) == (3, S)
    advertise(made, Y, 9, 5 * S)
    assert (expects.seq, expects.time_us) == (9, 5 * S)


def test_nobody_gets_the_stream_who_is_not_ahead_of_ourselves() -> None:
    made, context = proxy()
    advertise(made, Y, 1, S)
    made.on_message(0, Y, Events(THEIRS, 1, (theirs(1, 50),)))
    context.outputs.clear()
    advertise(made, Z, 50, 9 * S)
    assert context.take("send") == []
    advertise(made, Z, 51, 9 * S)
    assert context.take("send") == [(Y, Unsubscribe(THEIRS, 1)), (Z, Subscribe(THEIRS, 50, 2))]


@pytest.mark.paper("S5")
def test_a_broken_link_is_asked_again_from_the_own_counter() -> None:
    made, context = proxy()
    advertise(made, Y, 100, S)
    made.on_message(0, Y, Events(THEIRS, 1, (theirs(1, 60),)))
    context.outputs.clear()
    made.on_link_down(0, Z)
    advertise(made, Z, 100, 2 * S)
    assert context.take("send") == []  # Y promised as much
    made.on_link_down(0, Y)
    advertise(made, Z, 60, 2 * S)
    assert context.take("send") == []  # nothing for us
    advertise(made, Z, 61, 2 * S)
    assert context.take("send") == [(Z, Subscribe(THEIRS, 60, 2))]


def test_a_source_that_does_not_send_what_it_promised_is_given_up_ever_more_patiently() -> None:
    made, context = proxy(stall_ms=2000.0)
    advertise(made, Y, 100, 0)
    context.outputs.clear()
    made.receiving.on_tick(2 * S)
    assert context.take("send") == []
    made.receiving.on_tick(2 * S + 1)
    assert context.take("send") == [(Y, Unsubscribe(THEIRS, 1))]
    advertise(made, Z, 100, 3 * S)
    assert context.take("send") == [(Z, Subscribe(THEIRS, 0, 2))]
    made.receiving.on_tick(7 * S)
    assert context.take("send") == []
    made.receiving.on_tick(7 * S + 1)
    assert context.take("send") == [(Z, Unsubscribe(THEIRS, 2))]
    advertise(made, Z, 100, 8 * S)
    made.on_message(0, Z, Events(THEIRS, 3, (theirs(1, 1),)))
    assert made.receiving.expects[THEIRS].stalls == 0


def test_events_that_do_not_fit_are_refused_and_asked_for_again() -> None:
    made, context = proxy()
    for token, bad in enumerate(
        (theirs(5, 9), Batch.build(OURS, [b"a"], first=1), theirs(1, 4).take([0, 2])), 1
    ):
        advertise(made, Y, 10, S)
        made.on_message(0, Y, Events(THEIRS, token, (bad,)))
        assert context.take("send") == [(Y, Subscribe(THEIRS, 0, token)), (Y, Unsubscribe(THEIRS, token))]
        assert made.receiving.expects[THEIRS].source is None
    assert made.history.counter(THEIRS) == made.history.counter(OURS) == 0


def test_what_a_source_has_dropped_is_looked_for_elsewhere() -> None:
    made, context = proxy(MemoryHistory(limit_bytes=500))
    for _ in range(10):
        made.on_request(0, Publish(0, Batch.build(OURS, [bytes(200)])))
    context.outputs.clear()
    made.on_message(0, Y, Subscribe(OURS, 0, 1))
    ((to, said),) = context.take("send")
    assert (to, said.token, said.first) == (Y, 1, 1)
    assert isinstance(said, Unserved)
    assert made.sending.cursors[OURS] == {}

    advertise(made, Y, 9, S)
    made.on_message(0, Y, Unserved(THEIRS, 1, 1, 5))
    assert context.take("deliver") == [Unserved(THEIRS, 1, 1, 5)]
    context.outputs.clear()
    advertise(made, Y, 10, 2 * S)
    assert context.take("send") == []
    advertise(made, Z, 9, 2 * S)
    assert context.take("send") == [(Z, Subscribe(THEIRS, 0, 2))]


def test_what_was_dropped_everywhere_is_passed_over_with_a_tombstone_in_its_place() -> None:
    made, context = proxy(stall_ms=2000.0)
    for peer, lacks in ((Y, 5), (Z, 7)):
        advertise(made, peer, 9, S)
        made.on_message(0, peer, Unserved(THEIRS, made.receiving.expects[THEIRS].token, 1, lacks))
    for now_us in (2 * S, 3 * S, 4 * S, 5 * S):
        assert made.history.counter(THEIRS) == 0
        made.on_timer(now_us, "advertise")
    assert made.history.counter(THEIRS) == 5
    (batch,) = made.history.read(THEIRS, 1, 1 << 20)
    assert batch.kind(0) is Kind.TOMBSTONE
    assert context.take("deliver")[-1] == Advanced(THEIRS, 1, 5)
    context.outputs.clear()
    advertise(made, Z, 9, 6 * S)
    assert context.take("send") == []
    advertise(made, Y, 9, 6 * S)
    assert context.take("send") == [(Y, Subscribe(THEIRS, 5, 3))]


def test_peers_may_change() -> None:
    made, context = proxy()
    advertise(made, Y, 9, S)
    context.outputs.clear()
    made.receiving.set_peers([Z])
    assert context.take("send") == [(Y, Unsubscribe(THEIRS, 1))]
    advertise(made, Y, 10, S)
    assert context.take("send") == []


def test_tokens_of_another_life_are_others() -> None:
    """A source that has not heard of our crash yet may push to us what our former life had asked for."""
    tokens = set()
    for seed in range(2):
        context = InOrder(X, random.Random(seed))
        streams = Streams("x", {OURS: "x", THEIRS: "y"})
        made = ProxyLevel(context, ProxyLevelConfig(), MemoryHistory(), streams, [X, Y, Z])
        tokens.add(made.receiving.expects[THEIRS].token)
    assert len(tokens) == 2
