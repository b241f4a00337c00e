"""What the transport says, and how it chooses a version."""

from typing import Any

import msgspec
import pytest

from qanat.wire.control import (
    Error,
    Goodbye,
    Hello,
    Identity,
    Ping,
    Pong,
    Refuse,
    Refused,
    Welcome,
    agree,
    decode_control,
    encode_control,
)
from qanat.wire.frame import FrameType, MalformedFrame

ME = Identity("eu/a", 7, "test", "node", "qanat://a:1")


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (FrameType.HELLO, Hello(ME, 1, 3, capabilities=("zstd",), credentials=b"secret")),
        (FrameType.WELCOME, Welcome(ME, 1, ("zstd",))),
        (FrameType.REFUSE, Refuse("version", "too old")),
        (FrameType.PING, Ping(12, True)),
        (FrameType.PONG, Pong(12)),
        (FrameType.GOODBYE, Goodbye("shutdown", "restart")),
        (FrameType.ERROR, Error("no_stream", "there is none", False, 9)),
    ],
)
def test_there_and_back(type_: Any, value: Any) -> None:
    assert decode_control(type_, encode_control(value)) == value


@pytest.mark.parametrize("type_", [0, 15, FrameType.MESSAGE, 255])
def test_types_that_are_not_the_transports(type_: Any) -> None:
    with pytest.raises(MalformedFrame, match="no meaning"):
        decode_control(type_, b"")


@pytest.mark.parametrize("control", [b"", b"\xc1", b"\x80", b"\xa3abc", b"\x91" * 5000 + b"\x01"])
def test_malformed_control(control: Any) -> None:
    with pytest.raises(MalformedFrame, match="HELLO"):
        decode_control(FrameType.HELLO, control)


def test_a_newer_peer_may_say_more() -> None:
    class NewerHello(Hello, frozen=True):
        colour: str = "blue"

    data = msgspec.msgpack.encode(NewerHello(ME, 1, 9))
    assert decode_control(FrameType.HELLO, data) == Hello(ME, 1, 9)


@pytest.mark.parametrize(
    ("theirs", "ours", "chosen"),
    [((1, 1), (1, 1), 1), ((1, 5), (2, 3), 3), ((3, 9), (1, 3), 3), ((2, 2), (1, 9), 2)],
)
def test_newest_common_version(theirs: Any, ours: Any, chosen: Any) -> None:
    assert agree(Hello(ME, *theirs), *ours) == chosen


@pytest.mark.parametrize(("theirs", "ours"), [((2, 3), (1, 1)), ((1, 1), (2, 2))])
def test_no_common_version(theirs: Any, ours: Any) -> None:
    with pytest.raises(Refused, match="no common protocol version") as caught:
        agree(Hello(ME, *theirs), *ours)
    assert caught.value.code == "version"


def test_wrong_magic() -> None:
    with pytest.raises(Refused, match="does not"):
        agree(Hello(ME, magic=b"HTTP"))
