"""The contract itself: what messages may hold, what machines must answer."""

import msgspec
import pytest

from qanat.events.errors import InvariantError, QanatError
from qanat.kernel import (
    Address,
    Machine,
    Message,
    MutableMessage,
    ProtocolInvariantError,
    check_immutable,
    require,
)


class Ping(Message, frozen=True):
    number: int
    payload: bytes = b""
    path: tuple[str, ...] = ()


class Listing(Message, frozen=True):
    names: list[str]


class Hidden(Message, frozen=True):
    pairs: tuple[tuple[str, dict[str, int]], ...] | None


class Crowd(Message, frozen=True):
    members: frozenset[str]


class Nested(Message, frozen=True):
    inner: Ping
    maybe: int | None


def test_a_message_is_tagged_with_its_class_name() -> None:
    data = msgspec.msgpack.encode(Ping(3, b"x", ("a", "b")))
    assert msgspec.msgpack.decode(data)["type"] == "Ping"
    assert msgspec.msgpack.decode(data, type=Ping | Nested) == Ping(3, b"x", ("a", "b"))


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Ping(1).number = 2  # type: ignore[misc]


@pytest.mark.parametrize("kind", [Ping, Nested])
def test_plain_fields_pass(kind: type[Message]) -> None:
    check_immutable(kind)


@pytest.mark.parametrize("kind", [Listing, Hidden, Crowd])
def test_fields_that_change_or_have_no_order_are_refused(kind: type[Message]) -> None:
    with pytest.raises(MutableMessage, match=f"{kind.__name__}: field"):
        check_immutable(kind)


def test_require_raises_its_own_error() -> None:
    require(True, "fine")
    with pytest.raises(ProtocolInvariantError, match="two heads") as caught:
        require(False, "two heads")
    assert isinstance(caught.value, InvariantError)
    assert isinstance(caught.value, QanatError)


def test_a_broken_channel_may_be_ignored_but_the_rest_must_be_answered() -> None:
    machine: Machine[Ping, int] = Machine(context=None)  # type: ignore[arg-type]
    machine.on_link_down(0, Address("peer"))
    for call in (
        lambda: machine.on_start(0, ()),
        lambda: machine.on_message(0, Address("peer"), Ping(1)),
        lambda: machine.on_timer(0, "tick"),
        lambda: machine.on_request(0, 1),
    ):
        with pytest.raises(NotImplementedError):
            call()
