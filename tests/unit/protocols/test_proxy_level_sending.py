"""How a proxy serves others: cursors with windows, shared fairly, batches as they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.proxy_level_by_hand import OURS, THEIRS, S, X, Y, Z, advertise, proxy, theirs

from qanat.events.batch import Batch
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.proxy_level import (
    Ack,
    Events,
    ProxyLevel,
    ProxyLevelConfig,
    Publish,
    Streams,
    Subscribe,
    Unsubscribe,
)


@pytest.mark.paper("S5")
def test_a_subscription_is_a_cursor_with_a_window() -> None:
    made, context = proxy(window_bytes=1000, message_bytes=400)
    for _ in range(50):
        made.on_request(0, Publish(0, Batch.build(OURS, [bytes(100)])))
    context.outputs.clear()
    made.on_message(0, Y, Subscribe(OURS, 10, 5))
    sent = context.take("send")
    cursor = made.sending.cursors[OURS][Y]
    assert cursor.in_flight_bytes <= 1200
    assert sent[0][1].batches[0].first == 11
    for _ in range(50):  # a dead subscriber costs nothing more, whatever is published
        made.on_request(0, Publish(0, Batch.build(OURS, [bytes(100)])))
    assert context.take("send") == []
    got = 10
    while sent:
        for _, events in sent:
            assert events.token == 5
            for batch in events.batches:
                assert batch.first == got + 1
                got = batch.last
        made.on_message(0, Y, Ack(OURS, 5, got))
        sent = context.take("send")
    assert got == 100
    assert cursor.in_flight_bytes == cursor.in_flight_messages == 0


def test_streams_of_one_subscriber_share_a_window_and_none_starves() -> None:
    context, history = InOrder(X), MemoryHistory()
    streams = Streams("x", dict.fromkeys((1, 2, 3), "x"))
    config = ProxyLevelConfig(window_bytes=1000, message_bytes=200, peer_window_bytes=1500)
    made = ProxyLevel(context, config, history, streams, [X, Y, Z])
    for stream in (1, 2, 3):
        for _ in range(30):
            history.append(Batch.build(stream, [bytes(100)]))
        made._shown[stream] = 30
    for stream in (1, 2, 3):
        made.on_message(0, Y, Subscribe(stream, 0, 1))
    got, flow = dict.fromkeys((1, 2, 3), 0), made.sending.flows[Y]
    assert list(flow.waiting) == [2, 3]
    under_way, most = deque(context.take("send")), 0
    while under_way:
        most = max(most, flow.in_flight_bytes)
        _, events = under_way.popleft()
        assert events.batches[0].first == got[events.stream] + 1
        got[events.stream] = events.batches[-1].last
        made.on_message(0, Y, Ack(events.stream, 1, got[events.stream]))
        under_way += context.take("send")
    assert got == {1: 30, 2: 30, 3: 30}
    assert most <= 1500 + 200
    assert (flow.in_flight_bytes, flow.waiting) == (0, {})
    made.on_message(0, Y, Subscribe(1, 0, 2))  # replaced while in flight, then ended
    made.on_message(0, Y, Subscribe(1, 0, 3))
    made.on_message(0, Y, Unsubscribe(1, 3))
    assert flow.in_flight_bytes == 0


def drops_a_stream(made: ProxyLevel) -> None:
    made.sending.set_streams([2])


def has_all_of_it(made: ProxyLevel) -> None:
    made.on_message(0, Y, Subscribe(1, 30, 2))


@pytest.mark.parametrize("frees", [drops_a_stream, has_all_of_it])
def test_a_stream_that_waits_goes_on_when_another_leaves_room(frees: Callable[[ProxyLevel], None]) -> None:
    context, history = InOrder(X), MemoryHistory()
    config = ProxyLevelConfig(window_bytes=1000, message_bytes=1000, peer_window_bytes=1000)
    made = ProxyLevel(context, config, history, Streams("x", dict.fromkeys((1, 2), "x")), [X, Y, Z])
    for stream in (1, 2):
        for _ in range(30):
            history.append(Batch.build(stream, [bytes(100)]))
        made._shown[stream] = 30
        made.on_message(0, Y, Subscribe(stream, 0, 1))
    assert list(made.sending.flows[Y].waiting) == [2]
    context.outputs.clear()
    frees(made)
    assert {sent.stream for _, sent in context.take("send") if isinstance(sent, Events)} == {2}


def test_batches_are_forwarded_as_they_came() -> None:
    made, context = proxy()
    made.on_message(0, Z, Subscribe(THEIRS, 0, 9))
    advertise(made, Y, 3, S)
    batch = theirs(1, 3)
    made.on_message(0, Y, Events(THEIRS, 1, (batch,)))
    (forwarded,) = [sent for to, sent in context.take("send") if to == Z]
    assert forwarded == Events(THEIRS, 9, (batch,))
    assert forwarded.batches[0] is batch


def test_subscriptions_end() -> None:
    made, context = proxy()
    for end in (
        lambda: made.on_message(0, Y, Unsubscribe(OURS, 1)),
        lambda: made.on_link_down(0, Y),
        lambda: made.sending.set_peers([Z]),
    ):
        made.sending.set_peers([Y, Z])
        made.on_message(0, Y, Subscribe(OURS, 0, 1))
        made.on_message(0, Y, Unsubscribe(OURS, 77))
        assert made.sending.cursors[OURS].keys() == {Y}
        end()
        assert made.sending.cursors[OURS] == {}
    context.outputs.clear()
    made.on_request(0, Publish(0, Batch.build(OURS, [b"a"])))
    assert context.take("send") == []
