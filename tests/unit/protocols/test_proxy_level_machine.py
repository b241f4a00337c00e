"""The Proxy-Level Protocol's machine and its halves, driven by hand."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from qanat.events.batch import Batch, Kind
from qanat.events.tombstones import tombstone
from qanat.kernel import Address, Message, ProtocolInvariantError, check_immutable
from qanat.protocols.history import Synced
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.proxy_level import (
    Ack,
    Advanced,
    Advertisement,
    Events,
    ProxyLevel,
    ProxyLevelConfig,
    Publish,
    Published,
    Refused,
    Streams,
    Subscribe,
    Unserved,
    Unsubscribe,
)
from qanat.protocols.proxy_level.elapsed import Elapsed
from qanat.protocols.proxy_level.receiving import switches

X, Y, Z = (Address(f"{name}/proxy-1") for name in "xyz")
OURS, THEIRS = 1, 2
S = 1_000_000


class FromZero(random.Random):
    """So that tokens count from 1."""

    def getrandbits(self, k: int, /) -> int:
        return 0


class FakeContext:
    """Writes down outputs in order."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.rng: random.Random = FromZero(1)
        self.outputs: list[tuple[Any, ...]] = []

    def send(self, to: Address, message: Message) -> None:
        self.outputs.append(("send", to, message))

    def cast(self, to: Address, message: Message) -> None:
        self.outputs.append(("cast", to, message))

    def set_timer(self, name: str, after_us: int) -> None:
        self.outputs.append(("timer", name, after_us))

    def cancel_timer(self, name: str) -> None:
        self.outputs.append(("cancel", name))

    def persist(self, record: bytes) -> None:
        self.outputs.append(("persist", record))

    def deliver(self, item: object) -> None:
        self.outputs.append(("deliver", item))

    def trace(self, what: str, **fields: object) -> None:
        self.outputs.append(("trace", what, fields))

    def take(self, kind: str) -> list[Any]:
        """What was sent (with whom to) or delivered since the last time."""
        found = [output[1:] if kind == "send" else output[1] for output in self.outputs if output[0] == kind]
        self.outputs = [output for output in self.outputs if output[0] != kind]
        return found


class Late(MemoryHistory):
    """Durable only when told."""

    synced = 0

    def durable(self, stream: int) -> int:
        return min(self.synced, self.counter(stream))


def proxy(history: MemoryHistory | None = None, **config: Any) -> tuple[ProxyLevel, FakeContext]:
    context = FakeContext(X)
    streams = Streams("x", {OURS: "x", THEIRS: "y"})
    made = ProxyLevel(context, ProxyLevelConfig(**config), history or MemoryHistory(), streams, [X, Y, Z])
    made.on_start(0, ())
    context.outputs.clear()
    return made, context


def theirs(first: int, last: int) -> Batch:
    return Batch.build(THEIRS, [b"%d" % i for i in range(first, last + 1)], first=first)


def at(made: ProxyLevel, time_us: int) -> None:
    """Let the clock that never goes back come to this time."""
    made._elapsed._base_us, made._elapsed._wall_us = time_us, 0
    made._elapsed._armed_us = 0


def advertise(made: ProxyLevel, sender: Address, counter: int, time_us: int) -> None:
    at(made, time_us)
    made.on_message(0, sender, Advertisement(((THEIRS, counter),)))


def test_messages_can_never_change() -> None:
    for kind in ProxyLevel.message_types:
        check_immutable(kind)


# Publishing


@pytest.mark.paper("S4")
def test_the_owner_numbers_densely_and_answers() -> None:
    made, context = proxy()
    made.on_request(0, Publish(7, Batch.build(OURS, [b"a", b"b"], source="s", position=1)))
    made.on_request(0, Publish(8, Batch.build(OURS, [b"b", b"c"], source="s", position=2)))
    assert context.take("deliver") == [
        Advanced(OURS, 1, 2),
        Published(7, OURS, 1, 2, 0),
        Advanced(OURS, 3, 3),
        Published(8, OURS, 3, 3, 1),
    ]


@pytest.mark.paper("S4")
def test_what_belongs_elsewhere_is_refused_with_the_owners_name() -> None:
    made, context = proxy()
    made.on_request(0, Publish(1, theirs(1, 2)))
    made.on_request(0, Publish(2, Batch.build(99, [b"a"])))
    made.on_request(0, Publish(3, tombstone(OURS, 1, 2)))
    foreign, unknown, wrong = context.take("deliver")
    assert (foreign.request, foreign.owner) == (1, "y")
    assert "'y'" in foreign.reason
    assert (unknown.request, unknown.owner) == (2, "")
    assert "no region" in unknown.reason
    assert (wrong.request, wrong.owner) == (3, "")
    assert made.history.counter(OURS) == made.history.counter(THEIRS) == 0


def test_nothing_is_answered_or_shown_before_it_is_durable() -> None:
    history = Late()
    made, context = proxy(history, pending_publishes=2)
    made.on_message(0, Y, Subscribe(OURS, 0, 1))
    for request in (1, 2, 3):
        made.on_request(0, Publish(request, Batch.build(OURS, [b"a"])))
    (full,) = context.take("deliver")
    assert isinstance(full, Refused)
    assert full.request == 3
    made.on_timer(0, "advertise")
    assert (Y, Advertisement(((OURS, 0), (THEIRS, 0)))) in context.take("send")
    history.synced = 1
    made.on_request(0, Synced(OURS, 1))
    assert context.take("deliver") == [Advanced(OURS, 1, 1), Published(1, OURS, 1, 1, 0)]
    ((to, sent),) = context.take("send")
    assert (to, sent.batches[-1].last) == (Y, 1)
    made.on_request(0, Synced(THEIRS, 5))
    assert context.outputs[-1][0] != "deliver"


# The rule


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


def test_strangers_and_unknown_streams_change_nothing() -> None:
    made, context = proxy()
    stranger = Address("mallory")
    for sender, message in (
        (stranger, Advertisement(((THEIRS, 9),))),
        (Y, Advertisement(((99, 9), (OURS, 9)))),
        (stranger, Subscribe(OURS, 0, 1)),
        (Y, Subscribe(99, 0, 1)),
        (Y, Subscribe(OURS, -5, 1)),
        (Y, Ack(OURS, 1, 9)),
        (Y, Unsubscribe(99, 1)),
        (Y, Unserved(THEIRS, 1, 1, 2)),
        (Y, Events(OURS, 0, (Batch.build(OURS, [b"a"], first=1),))),
    ):
        made.on_message(0, sender, message)
    assert {output[0] for output in context.outputs} == {"trace"}
    assert made.history.counter(OURS) == 0
    with pytest.raises(ProtocolInvariantError):
        made.on_timer(0, "lunch")


# Serving


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
    context, history = FakeContext(X), MemoryHistory()
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
        at(made, now_us)
        made.on_timer(0, "advertise")
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


# Time


def test_elapsed_never_goes_back_whatever_the_wall_clock_does() -> None:
    elapsed = Elapsed(5 * S)
    elapsed.arm(5 * S, 100)
    assert elapsed.read(5 * S + 40) == 40
    assert elapsed.read(1) == 40
    assert elapsed.read(99 * S) == 100
    elapsed.arm(2 * S, 100)
    assert elapsed.read(0) == 100
    assert elapsed.read(2 * S + 30) == 130


@pytest.mark.parametrize(
    "wrong",
    [
        {"advertise_ms": 0.0},
        {"c_event_s": -1.0},
        {"window_bytes": 0},
        {"peer_window_bytes": 0},
        {"stall_ms": 0.0},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ProxyLevelConfig(**wrong)


def test_tokens_of_another_life_are_others() -> None:
    """A source that has not heard of our crash yet may push to us what our former life had asked for."""
    tokens = set()
    for seed in range(2):
        context = FakeContext(X)
        context.rng = random.Random(seed)
        streams = Streams("x", {OURS: "x", THEIRS: "y"})
        made = ProxyLevel(context, ProxyLevelConfig(), MemoryHistory(), streams, [X, Y, Z])
        tokens.add(made.receiving.expects[THEIRS].token)
    assert len(tokens) == 2
