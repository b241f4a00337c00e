"""Whatever is asked of a client or said to it: streams come and go, nonsense changes nothing, no number is
skipped."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.protocols.mesh_by_hand import (
    OTHER,
    PROXY,
    STREAM,
    A,
    B,
    Outputs,
    batch,
    client,
    events,
    news,
    notify,
)

from qanat.kernel import Address, Message, ProtocolInvariantError
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import (
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
from qanat.protocols.views import Gossip, Leave, ViewsConfig
from qanat.wire.messages import MessageCodec

pytestmark = pytest.mark.paper("S7")


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


def test_absurd_ranges_are_no_messages() -> None:
    for absurd in (
        lambda: Request(STREAM, 5, 4),
        lambda: news(20, 10),
        lambda: Notify((STREAM, OTHER), (1,), False),
        lambda: Gossip((A,), (), True),
    ):
        with pytest.raises(ValueError, match=r"request for|end before|have \d"):
            absurd()


def test_absurd_requests_and_strangers_batches_change_nothing() -> None:
    made, context = client()
    made.on_message(0, A, Request(STREAM, -5, 4))
    made.on_message(0, A, Attach())
    made.on_message(0, A, events(1, 10, batch(1, 10, OTHER), batch(500, 510)))
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


@settings(max_examples=examples(200))
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
