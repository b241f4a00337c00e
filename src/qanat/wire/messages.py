"""Kernel messages as frames: one tagged MessagePack value, batches beside it.

A machine's messages are a union tagged by class name. A `Batch` in a field is not copied into the
MessagePack value: the field holds its place in the attachment (0, 1, …), and the batches lie end to end
there, so that a received message's batches are views of the receive buffer.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Generic, TypeVar

import msgspec

from qanat.events.batch import Batch, decode_all
from qanat.events.errors import LocalError, MalformedBatch
from qanat.events.layout import GHOST
from qanat.wire.frame import Bytes, MalformedFrame

_M = TypeVar("_M", bound=msgspec.Struct)


class MessageCodec(Generic[_M]):
    """Encodes and decodes the messages of one machine: decodes what it takes, `message_types`, and encodes
    that and what it sends to others than its like, `sent_types`."""

    def __init__(self, message_types: Sequence[type[_M]], sent_types: Sequence[type[_M]] = ()) -> None:
        if not message_types:
            raise LocalError("a machine that receives messages names their types in `message_types`")
        self._types = frozenset((*message_types, *sent_types))
        union: Any = reduce(or_, message_types)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._out)
        self._decoder: msgspec.msgpack.Decoder[_M] = msgspec.msgpack.Decoder(union, dec_hook=self._in)
        self._outgoing: list[Bytes] = []
        self._incoming: list[Batch] = []

    def encode(self, message: _M) -> tuple[bytes, list[Bytes]]:
        """The control part and the attachments; the batches are not copied."""
        if type(message) not in self._types:
            raise LocalError(f"{type(message).__name__} is not among what the machine takes or sends")
        self._outgoing = []
        control = self._encoder.encode(message)
        return control, self._outgoing

    def decode(self, control: Bytes, attachment: Bytes = b"") -> _M:
        """The message; raises `MalformedFrame`. Each batch in it was checked against its checksums."""
        try:
            self._incoming = list(decode_all(attachment)) if len(attachment) else []
            if any(batch.header.flags & GHOST for batch in self._incoming):
                raise MalformedBatch("a batch without its payloads, which are for simulations")
            return self._decoder.decode(control)
        except (msgspec.MsgspecError, MalformedBatch, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFrame("malformed", f"not a message of this machine: {error}") from None
        finally:
            self._incoming = []

    def _out(self, value: Any) -> int:
        if not isinstance(value, Batch):
            raise LocalError(f"a message cannot hold a {type(value).__name__}")
        self._outgoing.append(value.encode())
        return len(self._outgoing) - 1

    def _in(self, kind: type, value: Any) -> Batch:
        if kind is not Batch or type(value) is not int or not 0 <= value < len(self._incoming):
            raise ValueError(f"there is no batch {value!r} in the attachment")
        return self._incoming[value]
