"""A client and a proxy of the mesh, driven by hand."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.events.batch import Batch
from qanat.events.tombstones import tombstone
from qanat.kernel import Address, Message, ProtocolInvariantError
from qanat.protocols.history import Synced
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import (
    Arrived,
    Attach,
    Events,
    MeshClient,
    MeshConfig,
    MeshProxy,
    Notify,
    Request,
    Subscribe,
    Unsubscribe,
)
from qanat.protocols.views import Gossip, Leave, UseProxy, ViewsConfig
from qanat.wire.messages import MessageCodec

pytestmark = pytest.mark.paper("S7")

ME, PROXY, A, B = (Address(name) for name in ("eu/me", "eu/proxy-1", "eu/a", "eu/b"))
STREAM, OTHER = 7, 8


class Outputs:
    """A context that writes down what goes out."""

    def __init__(self, address: Address = ME, seed: int = 1) -> None:
        self.address = address
        self.rng = random.Random(seed)
        self.sent: list[tuple[Address, Message]] = []
        self.casts: list[tuple[Address, Message]] = []
        self.timers: dict[str, int] = {}
        self.delivered: list[tuple[int, int]] = []

    def send(self, to: Address, message: Message) -> None:
        self.sent.append((to, message))

    def cast(self, to: Address, message: Message) -> None:
        self.casts.append((to, message))

    def set_timer(self, name: str, after_us: int) -> None:
        self.timers[name] = after_us

    def cancel_timer(self, name: str) -> None:
        self.timers.pop(name, None)

    def persist(self, record: bytes) -> None:
        raise AssertionError("nothing here survives")

    def deliver(self, item: object) -> None:
        assert isinstance(item, Batch)
        self.delivered.append((item.first, item.last))

    def trace(self, what: str, **fields: object) -> None: ...

    def take(self) -> list[tuple[Address, Message]]:
        sent, self.sent = self.sent, []
        return sent

    def notified(self) -> list[Address]:
        told = [to for to, message in self.casts if isinstance(message, Notify)]
        self.casts = []
        return told


def client(*, listens: bool = True, config: MeshConfig | None = None) -> tuple[MeshClient, Outputs]:
    context = Outputs()
    made = MeshClient(
        context,
        config or MeshConfig(neighbour_requests=2),
        ViewsConfig(),
        PROXY,
        {STREAM: 0},
        listens=listens,
    )
    made.on_start(0, ())
    return made, context


def batch(first: int, last: int, stream: int = STREAM) -> Batch:
    return Batch.build(stream, [b"x"] * (last - first + 1), first=first)


def notify(cnt: int, ask: bool = False) -> Notify:
    return Notify((STREAM,), (cnt,), ask)


def news(first: int, last: int, cnt: int = 0) -> Notify:
    """Of a member that has got these and, in order, everything up to `cnt`."""
    return Notify((STREAM,), (cnt,), False, ((STREAM, first, last),))


def events(nxt: int, upto: int, *batches: Batch, cnt: int = 0) -> Events:
    return Events(STREAM, nxt, upto, cnt, batches)


# Asking and taking


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


# What does not come


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


# Telling


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


# Without a way in


def test_a_client_without_a_way_in_attaches_to_the_proxy_and_receives_from_it_alone() -> None:
    made, context = client(listens=False)
    assert context.take() == [(PROXY, Attach())]
    assert context.casts == []
    made.on_message(0, PROXY, notify(10))
    assert context.take() == [(PROXY, Request(STREAM, 1, 10))]
    made.on_message(0, PROXY, events(1, 10, batch(1, 10)))
    assert context.delivered == [(1, 10)]
    assert context.notified() == []
    made.on_timer(0, "attach")
    assert context.take() == [(PROXY, Attach())]


def test_the_proxy_tells_the_attached_by_their_channels_up_to_a_bound() -> None:
    context = Outputs(PROXY)
    history = MemoryHistory()
    made = MeshProxy(context, MeshConfig(attached_limit=1), ViewsConfig(), history)
    made.on_start(0, ())
    made.on_message(0, A, Attach())
    made.on_message(0, B, Attach())
    assert context.take() == []
    history.append(batch(1, 10))
    made.on_request(0, Arrived(STREAM))
    assert context.take() == [(A, news(1, 10, cnt=10))]
    made.on_link_down(0, A)
    made.on_message(0, B, Attach())
    assert context.take() == [(B, notify(10))]


# The proxy


class Careful(MemoryHistory):
    """Durable later than stored."""

    upto = 0

    def durable(self, stream: int) -> int:
        return self.upto


def test_the_proxy_shows_and_serves_what_is_durable() -> None:
    context, history = Outputs(PROXY), Careful()
    made = MeshProxy(context, MeshConfig(), ViewsConfig(), history)
    made.on_start(0, ())
    made.on_message(0, A, Gossip((), (), False))
    history.append(batch(1, 10))
    history.append(batch(1, 10))
    made.on_request(0, Arrived(STREAM))
    assert context.casts == []
    history.upto = 10
    made.on_request(0, Synced(STREAM, 10))
    assert context.casts == [(A, news(1, 10, cnt=10))]
    made.on_message(0, A, Request(STREAM, 1, 20))
    [(_, answer)] = context.take()
    assert isinstance(answer, Events)
    assert [(one.first, one.last) for one in answer.batches] == [(1, 10)]
    assert (answer.upto, answer.cnt) == (20, 10)


def test_the_proxy_answers_in_pieces_and_says_where_each_ends() -> None:
    context, history = Outputs(PROXY), MemoryHistory()
    for _ in range(4):
        history.append(batch(1, 10))
    made = MeshProxy(context, MeshConfig(answer_bytes=2 * batch(1, 10).virtual_size), ViewsConfig(), history)
    made.on_start(0, ())
    for asked, answered in [
        ((1, 40), (2, 20)),
        ((15, 15), (1, 15)),
        ((25, 35), (2, 35)),
        ((35, 90), (1, 90)),
    ]:
        made.on_message(0, A, Request(STREAM, *asked))
        [(_, answer)] = context.take()
        assert isinstance(answer, Events)
        assert (len(answer.batches), answer.upto) == answered


def test_what_the_proxy_itself_no_longer_has_is_said_to_be_missing() -> None:
    context, history = Outputs(PROXY), MemoryHistory(limit_bytes=1)
    for _ in range(3):
        history.append(batch(1, 10))
    made = MeshProxy(context, MeshConfig(), ViewsConfig(), history)
    made.on_message(0, A, Request(STREAM, 1, 30))
    assert context.take() == [(A, Events(STREAM, 1, 30, 30, ()))]


# Subscriptions, and what is not to be believed


def test_streams_come_and_go() -> None:
    made, context = client()
    made.on_request(0, Subscribe(OTHER, after=5))
    made.on_message(0, A, Notify((STREAM, OTHER), (3, 8), False))
    assert context.take() == [(A, Request(STREAM, 1, 3)), (A, Request(OTHER, 6, 8))]
    made.on_message(0, A, Events(OTHER, 6, 8, 8, (batch(6, 8, OTHER),)))
    made.on_request(0, Unsubscribe(OTHER))
    assert made.buffer.bytes == 0
    made.on_message(0, A, Events(OTHER, 9, 9, 9, (batch(9, 9, OTHER),)))
    made.on_request(0, Unsubscribe(OTHER))
    assert context.delivered == [(6, 8)]
    made.on_request(0, Leave())
    assert made.streams == {}
    assert set(context.timers) <= {"late"}
    made.on_timer(0, "late")
    with pytest.raises(ProtocolInvariantError):
        made.on_timer(0, "lunch")


def test_absurd_requests_and_strangers_batches_change_nothing() -> None:
    made, context = client()
    made.on_message(0, A, Request(STREAM, 5, 4))
    made.on_message(0, A, Request(STREAM, -5, 4))
    made.on_message(0, A, Attach())
    made.on_message(0, A, events(1, 10, batch(1, 10, OTHER), batch(500, 510)))
    made.on_message(0, A, news(20, 10))
    made.on_message(0, A, Notify((STREAM,), (-7,), True, ((STREAM, -9, -8), (OTHER, 1, 5))))
    assert context.take() == []
    assert context.delivered == []
    assert made.early_bytes == 0
    proxy_context = Outputs(PROXY)
    proxy = MeshProxy(proxy_context, MeshConfig(), ViewsConfig(), MemoryHistory())
    proxy.on_message(0, A, events(1, 10, batch(1, 10)))
    proxy.on_message(0, A, notify(10, ask=True))
    assert proxy_context.take() == proxy_context.casts == []


RANGES = st.tuples(st.integers(1, 60), st.integers(0, 9))
SAID = st.one_of(
    st.tuples(st.just("notify"), st.integers(0, 80)),
    st.tuples(st.just("news"), RANGES),
    st.tuples(st.just("events"), st.integers(0, 80), st.integers(0, 80), st.lists(RANGES, max_size=4)),
    st.tuples(st.just("down")),
    st.tuples(st.just("late")),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from([A, B, PROXY]), SAID), max_size=30))
def test_whatever_is_said_delivery_has_no_gaps(said: list[tuple[Address, tuple[object, ...]]]) -> None:
    made, context = client(config=MeshConfig(request_events=16, early_bytes=600, buffer_bytes=600))
    for sender, what in said:
        match what:
            case ("notify", int(cnt)):
                made.on_message(0, sender, notify(cnt, ask=True))
            case ("news", (int(first), int(more))):
                made.on_message(0, sender, news(first, first + more, cnt=first - 1))
            case ("events", int(nxt), int(upto), list(parts)):
                batches = [batch(first, first + more) for first, more in parts]
                made.on_message(0, sender, events(nxt, upto, *batches, cnt=upto))
            case ("down",):
                made.on_link_down(0, sender)
            case _:
                made.on_timer(0, "late")
        assert made.early_bytes <= 600
        assert made.buffer.bytes <= 600
        books = made.streams[STREAM]
        known = [range(gap.first, gap.last + 1) for gap in books.gaps]
        known += [range(first, asked.last + 1) for first, asked in books.asked.items()]
        known += [range(first, last + 1) for first, last in books.lost]
        known += [range(early[0], 1 - early[1]) for early in books.early]
        assert set(range(books.cnt + 1, books.nxt)) <= set().union(*known), "a number that nobody minds"
    cnt = 0
    for first, last in context.delivered:
        assert first == cnt + 1
        cnt = last


def test_messages_pass_the_wire() -> None:
    codec: MessageCodec[Message] = MessageCodec(MeshClient.message_types)
    for message in (notify(3), Request(STREAM, 1, 2), Attach(), Gossip((A,), (1,), True)):
        assert codec.decode(codec.encode(message)[0]) == message
    control, attachments = codec.encode(events(1, 10, batch(1, 10), cnt=12))
    again = codec.decode(control, b"".join(attachments))
    assert isinstance(again, Events)
    assert (again.batches[0].first, again.batches[0].last, again.cnt) == (1, 10, 12)
