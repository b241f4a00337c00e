"""Every field of every message that comes from outside has a range, and decoding refuses what lies
outside."""

from typing import Any

import msgspec
import pytest
from tests.unit.wire.message_types import all_messages, fields_of, unbounded

from qanat.events.errors import LocalError, RemoteError
from qanat.events.ranges import check_name
from qanat.protocols.chain.messages import MESSAGES as CHAIN
from qanat.protocols.mesh.messages import Events, InMesh, Request
from qanat.wire.control import Hello, Identity, decode_control
from qanat.wire.frame import FrameType, MalformedFrame
from qanat.wire.messages import MessageCodec
from qanat.wire.streams import OPEN, PUBLISH, SUBSCRIBE, BadRequest, Open
from qanat.wire.streams import decode_control as decode_stream_control


def test_no_field_of_any_message_is_without_a_range() -> None:
    found = [
        reason
        for struct in all_messages()
        for name, kind in fields_of(struct).items()
        for reason in unbounded(kind, f"{struct.__module__}.{struct.__qualname__}.{name}")
    ]
    assert found == []


def test_the_walk_finds_messages_of_every_channel() -> None:
    names = {f"{each.__module__}.{each.__qualname__}" for each in all_messages()}
    assert len(names) > 80
    for one in (
        "qanat.protocols.chain.messages.Hello",
        "qanat.protocols.mesh.messages.Request",
        "qanat.protocols.views.messages.Gossip",
        "qanat.protocols.proxy_level.messages.Unserved",
        "qanat.protocols.publisher.messages.Join",
        "qanat.protocols.push_sum.Portion",
        "qanat.coordinate.messages.Call",
        "qanat.wire.control.Identity",
        "qanat.wire.streams.Subscribe",
        "qanat.wire.placed.Shelf",
        "qanat.runtime.datagram.Envelope",
    ):
        assert one in names


def test_a_field_without_a_range_is_found() -> None:
    class Loose(msgspec.Struct):
        number: int
        names: tuple[str, ...]

    assert len([*unbounded(fields_of(Loose)["number"], ""), *unbounded(fields_of(Loose)["names"], "")]) == 3


@pytest.mark.parametrize("nxt, cnt", [(-(1 << 63), 1), (0, 1), (1, -1), (1 << 63, 1 << 63), (5, 4)])
def test_a_request_for_what_cannot_be_is_not_decoded(nxt: int, cnt: int) -> None:
    codec = MessageCodec[Any]((InMesh,))
    fields = {
        "type": "InMesh",
        "stream": 1,
        "message": {"type": "Request", "stream": 1, "nxt": nxt, "cnt": cnt},
    }
    with pytest.raises(MalformedFrame):
        codec.decode(msgspec.msgpack.encode(fields))
    assert codec.decode(codec.encode(InMesh(1, Request(1, 1, 9)))[0]) == InMesh(1, Request(1, 1, 9))
    assert codec.decode(codec.encode(InMesh(1, Events(1, 1, 0, 0, ())))[0])


def test_eras_out_of_order_are_not_decoded() -> None:
    era = {"type": "Era", "epoch": 3, "head": "a", "starts": []}
    fields = {"type": "Welcome", "epoch": 3, "round": 1, "eras": [era, era]}
    with pytest.raises(MalformedFrame, match="order of their epochs"):
        MessageCodec[Any](CHAIN).decode(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "x\u202ey", "a" * 600])
def test_a_node_does_not_introduce_itself_by_what_cannot_be_printed(name: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_control(FrameType.HELLO, msgspec.msgpack.encode(Hello(Identity(name))))


def test_a_stream_has_no_name_that_cannot_be_printed() -> None:
    check_name("größe/日本 ✓", "a stream's name")
    with pytest.raises(LocalError, match=r"has no control characters: 'a\\nb' has '\\n' at character 2"):
        check_name("a\nb", "a stream's name")


def test_a_request_that_cannot_be_is_answered_under_its_number() -> None:
    for type_, control in (
        (OPEN, {"request": 7, "stream": 5}),
        (OPEN, {"request": 7, "stream": "x" * 2_000}),
        (SUBSCRIBE, {"subscription": 7, "stream": "x", "start": -1}),
        (PUBLISH, [7, [-1, 0]]),
    ):
        with pytest.raises(BadRequest) as caught:
            decode_stream_control(type_, msgspec.msgpack.encode(control))
        assert caught.value.request == 7
    with pytest.raises(RemoteError):
        decode_stream_control(OPEN, msgspec.msgpack.encode(Open(-1, "x")))
