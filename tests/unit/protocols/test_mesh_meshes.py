"""Several meshes at one node, driven by hand."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.protocols.contexts import ByKind

from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import (
    Arrived,
    Attach,
    ClientMeshes,
    Events,
    InMesh,
    MeshConfig,
    Notify,
    ProxyMeshes,
    Request,
    Serve,
    Subscribe,
    Unsubscribe,
)
from qanat.protocols.mesh.meshes import SWEEP
from qanat.protocols.views import Gossip, Leave, UseProxy, ViewsConfig
from qanat.runtime.datagram import Envelope
from qanat.runtime.members import member_name
from qanat.runtime.settings import TransportSettings
from qanat.wire.frame import FrameType, encode
from qanat.wire.messages import MessageCodec

pytestmark = pytest.mark.paper("S7")

ME, PROXY, OTHER, A = (Address(name) for name in ("eu/me", "eu/proxy-1", "eu/proxy-2", "eu/a"))


class Histories(MemoryHistory):
    """Streams 5 and 6 are there."""

    def holds(self, stream: int) -> bool:
        return stream in (5, 6)


def proxy(*, serves: bool = True) -> tuple[ProxyMeshes, ByKind, Histories]:
    context, history = ByKind(PROXY), Histories()
    made = ProxyMeshes(context, MeshConfig(), ViewsConfig(), history, serves=serves)
    made.on_start(0, ())
    return made, context, history


def client() -> tuple[ClientMeshes, ByKind]:
    context = ByKind(ME)
    made = ClientMeshes(context, MeshConfig(), ViewsConfig(), PROXY)
    made.on_start(0, ())
    return made, context


def hello(stream: int) -> InMesh:
    return InMesh(stream, Gossip((), (), True))


def test_a_client_is_in_the_meshes_of_its_streams_and_tells_each_apart() -> None:
    made, context = client()
    made.on_request(0, Subscribe(5, 0))
    made.on_request(0, Subscribe(6, 10))
    assert context.casts == [(PROXY, hello(5)), (PROXY, hello(6))]
    made.on_message(0, A, InMesh(6, Notify((6,), (12,), False)))
    assert context.sent == [(A, InMesh(6, Request(6, 11, 12)))]
    made.on_message(0, A, InMesh(6, Events(6, 11, 12, 12, (Batch.build(6, [b"x", b"y"], first=11),))))
    assert [(batch.stream, batch.first, batch.last) for batch in context.delivered] == [(6, 11, 12)]


def test_who_left_has_no_timers_and_says_at_once_that_it_has_nothing() -> None:
    made, context = client()
    made.on_request(0, Subscribe(5, 0))
    made.on_request(0, Subscribe(6, 0))
    made.on_request(0, Unsubscribe(5))
    assert context.timers and all(name.endswith(" 6") for name in context.timers)
    made.on_message(0, A, InMesh(5, Request(5, 3, 9)))
    made.on_message(0, A, InMesh(5, Notify((5,), (9,), False)))
    assert context.sent == [(A, InMesh(5, Events(5, 3, 2, 0, ())))]
    made.on_timer(0, "gossip 5")
    made.on_request(0, Leave())
    assert context.timers == {}


def test_a_proxy_enters_the_mesh_of_a_stream_that_is_there_when_someone_comes() -> None:
    made, context, history = proxy()
    history.append(Batch.build(5, [b"x"] * 3))
    made.on_request(0, Arrived(5))
    made.on_message(0, A, hello(7))
    assert not made.meshes
    made.on_message(0, A, hello(5))
    assert list(made.meshes) == [5]
    made.on_message(0, A, InMesh(5, Attach()))
    told = context.sent[-1][1]
    assert isinstance(told, InMesh) and isinstance(told.message, Notify)
    assert told.message.counters == (3,)
    made.on_message(0, A, InMesh(5, Request(5, 1, 3)))
    answer = context.sent[-1][1]
    assert isinstance(answer, InMesh) and isinstance(answer.message, Events)
    assert [batch.last for batch in answer.message.batches] == [3]


def test_a_replica_that_is_not_the_tail_serves_nobody() -> None:
    made, context, history = proxy(serves=False)
    history.append(Batch.build(5, [b"x"] * 3))
    made.on_message(0, A, hello(5))
    made.on_message(0, A, InMesh(5, Request(5, 1, 3)))
    assert (context.casts, context.sent) == ([], [(A, InMesh(5, Events(5, 1, 0, 0, ())))])
    made.on_request(0, Serve(True))
    made.on_message(0, A, hello(5))
    assert list(made.meshes) == [5]
    made.on_request(0, Serve(False))
    assert not made.meshes
    assert list(context.timers) == [SWEEP]


def test_a_mesh_without_members_is_left() -> None:
    made, context, _ = proxy()
    made.on_message(0, A, hello(5))
    made.on_message(0, A, hello(6))
    made.on_timer(0, SWEEP)
    assert list(made.meshes) == [5, 6]
    made.meshes[5].membership.view.clear()
    made.on_timer(0, SWEEP)
    assert list(made.meshes) == [6]
    assert SWEEP in context.timers


def test_what_was_asked_of_a_proxy_is_asked_of_its_successor() -> None:
    made, context = client()
    made.on_request(0, Subscribe(5, 0))
    made.on_message(0, PROXY, InMesh(5, Notify((5,), (9,), False)))
    assert context.sent == [(PROXY, InMesh(5, Request(5, 1, 9)))]
    made.on_request(0, UseProxy(OTHER))
    assert context.sent[1:] == [(OTHER, InMesh(5, Request(5, 1, 9)))]
    assert OTHER in [
        to
        for to, said in context.casts
        if isinstance(said, InMesh) and isinstance(said.message, Gossip) and said.message.answer
    ]
    made.on_request(0, Subscribe(6, 0))
    assert made.meshes[6].membership.proxy == OTHER


@pytest.mark.parametrize("host", ["10.100.100.100", "2001:0db8:85a3:1111:2222:8a2e:0370:7334"])
def test_a_full_view_fits_into_one_datagram(host: str) -> None:
    names = tuple(member_name(f"{number:08x}", host, 54321) for number in range(ViewsConfig().view_size))
    control, _ = MessageCodec((InMesh,)).encode(InMesh(2**64 - 1, Gossip(names, (40,) * len(names), True)))
    envelope = msgspec.msgpack.encode(Envelope("a-cluster-of-some-words", names[0], msgspec.Raw(control)))
    datagram = b"".join(encode(FrameType.CAST, 17, envelope, []))
    assert len(datagram) <= TransportSettings().datagram_limit_bytes
