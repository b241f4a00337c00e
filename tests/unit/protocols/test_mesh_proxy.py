"""The proxy of a mesh, and clients that nobody can connect to, which it serves."""

import pytest
from tests.unit.protocols.mesh_by_hand import (
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

from qanat.protocols.history import Synced
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import Arrived, Attach, Events, MeshConfig, MeshProxy, Request
from qanat.protocols.views import Gossip, ViewsConfig

pytestmark = pytest.mark.paper("S7")


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
