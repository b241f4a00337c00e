"""How many bytes a message would take on the wire: an estimate, so that bandwidth means something.

It follows the frame (a 16-byte header, then a msgpack map of the fields) without encoding anything. A
`Batch` counts with its `virtual_size`, so a batch without payload (`ghost=True`) costs on a simulated
link what its full self would cost on a real one.
"""

import types
import typing
from typing import Any

import msgspec

from qanat.kernel import Message
from qanat.sim.trace import encode

FRAME_BYTES = 16
"""The frame's fixed header, counted once per message."""
NUMBER_BYTES = 5
"""An integer or a float in msgpack takes 1 to 9 bytes; the middle."""

_FIXED_KINDS: tuple[Any, ...] = (int, float, bool, type(None))

fixed_sizes: dict[type, int] = {}
"""Message types that always have the same size; filled by `wire_size`, read first on the hot path."""
_shapes: dict[type, tuple[int, tuple[str, ...]]] = {}


def wire_size(message: Message) -> int:
    """The message's estimated bytes on the wire, frame included."""
    kind = type(message)
    shape = _shapes.get(kind)
    if shape is None:
        shape = _shapes[kind] = _shape(kind)
        if not shape[1]:
            fixed_sizes[kind] = shape[0]
    size, varying = shape
    for name in varying:
        size += _value_size(getattr(message, name))
    return size


def _shape(kind: type[Message]) -> tuple[int, tuple[str, ...]]:
    """The bytes that do not depend on the values, and the fields that do."""
    size = FRAME_BYTES + len("type") + len(kind.__name__) + 3
    varying = []
    for name, hint in typing.get_type_hints(kind).items():
        if name not in kind.__struct_fields__:
            continue
        size += len(name) + 1
        if _is_fixed(hint):
            size += NUMBER_BYTES
        else:
            varying.append(name)
    return size, tuple(varying)


def _is_fixed(hint: Any) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return all(map(_is_fixed, typing.get_args(hint)))
    return hint in _FIXED_KINDS


def _value_size(value: Any) -> int:
    match value:
        case None | bool() | int() | float():
            return NUMBER_BYTES
        case str() | bytes():
            return len(value) + 2
        case tuple():
            return 3 + sum(map(_value_size, value))
        case Message():
            return wire_size(value) - FRAME_BYTES
        case msgspec.Struct():
            return 3 + sum(_value_size(getattr(value, name)) for name in value.__struct_fields__)
    size = getattr(value, "virtual_size", None)
    return size if isinstance(size, int) else len(encode(value))
