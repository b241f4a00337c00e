"""What machines say to each other."""

import types
import typing
from typing import Any

import msgspec

from qanat.kernel.invariants import MutableMessage

_MUTABLE = (list, dict, set, frozenset, bytearray, memoryview)


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base of every message: `class Ping(Message, frozen=True)`; tagged on the wire with its class name.

    Fields are plain values, `bytes`, tuples of those, other messages, or a `Batch`. A simulated message
    travels by reference, so nothing in it may ever change: `check_immutable` refuses the rest.
    """


def check_immutable(cls: type[Message]) -> None:
    """Refuse a message type that two nodes could share by accident, or whose order is not fixed.

    Lists and dictionaries could be changed by the sender after the send; sets (frozen ones too) have an
    order that differs from one process to the next, and would bring it into the trace.
    """
    for name, kind in typing.get_type_hints(cls).items():
        bad = _mutable_part(kind)
        if bad is not None:
            raise MutableMessage(
                f"message {cls.__name__}: field `{name}` holds a {bad.__name__}, which can change or has "
                "no fixed order; use a tuple, bytes or another message"
            )


def _mutable_part(kind: Any) -> type | None:
    origin = typing.get_origin(kind)
    if origin in _MUTABLE or kind in _MUTABLE:
        return typing.cast(type, origin or kind)
    if origin is None and not isinstance(kind, types.UnionType):
        return None
    for part in typing.get_args(kind):
        bad = _mutable_part(part) if part is not Ellipsis else None
        if bad is not None:
            return bad
    return None
