"""Machine messages: tags, and batches beside the control part."""

from typing import Any

import msgspec
import pytest

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.kernel import Message
from qanat.wire.frame import MalformedFrame
from qanat.wire.messages import MessageCodec


class Note(Message, frozen=True):
    text: str
    numbers: tuple[int, ...] = ()


class Carry(Message, frozen=True):
    first: Batch
    label: str
    rest: tuple[Batch, ...] = ()
    maybe: Batch | None = None


class Stranger(Message, frozen=True):
    pass


CODEC = MessageCodec((Note, Carry))


def batch(*payloads: bytes) -> Batch:
    return Batch.build(5, list(payloads), first=1)


def test_plain_message() -> None:
    control, attachments = CODEC.encode(Note("hello", (1, 2)))
    assert attachments == []
    assert CODEC.decode(control) == Note("hello", (1, 2))


def test_batches_travel_beside_the_control_part() -> None:
    one, two, three = batch(b"one" * 1000), batch(b"two"), batch(b"three", b"3")
    control, attachments = CODEC.encode(Carry(one, "label", (two, three), one))
    assert len(control) < 100
    assert [bytes(a) for a in attachments] == [bytes(b.encode()) for b in (one, two, three, one)]
    joined = b"".join(attachments)
    message = CODEC.decode(control, memoryview(joined))
    assert isinstance(message, Carry)
    assert message.first.payload(0) == b"one" * 1000
    assert [b.count for b in message.rest] == [1, 2]
    assert message.maybe is not None
    assert message.maybe.payload(0) == b"one" * 1000


def test_no_batch_where_none_is() -> None:
    control, attachments = CODEC.encode(Carry(batch(b"x"), "l"))
    message = CODEC.decode(control, b"".join(attachments))
    assert isinstance(message, Carry)
    assert message.maybe is None


def test_foreign_messages_are_refused_on_both_sides() -> None:
    with pytest.raises(LocalError, match="Stranger"):
        CODEC.encode(Stranger())
    with pytest.raises(MalformedFrame):
        CODEC.decode(msgspec.msgpack.encode(Stranger()))


@pytest.mark.parametrize("place", [1, -1, "0", None, 2**40])
def test_a_batch_that_is_not_there(place: Any) -> None:
    control = msgspec.msgpack.encode({"type": "Carry", "first": place, "label": "l"})
    with pytest.raises(MalformedFrame):
        CODEC.decode(control, batch(b"x").encode())


def test_a_corrupt_batch() -> None:
    control, attachments = CODEC.encode(Carry(batch(b"payload" * 20), "l"))
    data = bytearray(b"".join(attachments))
    data[-9] ^= 1
    with pytest.raises(MalformedFrame):
        CODEC.decode(control, data)


def test_a_machine_needs_message_types() -> None:
    with pytest.raises(LocalError):
        MessageCodec(())
