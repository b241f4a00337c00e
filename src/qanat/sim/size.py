"""How many bytes a message would take on the wire: an estimate, so that bandwidth means something.

It follows the frame (a 16-byte header, then a msgpack map of the fields) without encoding anything. A
`Batch` counts with its `virtual_size`, so a batch without payload (`ghost=True`) costs on a simulated
link what its full self would cost on a real one.
"""

import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from qanat.kernel import Message
from qanat.sim.trace import encode

FRAME_BYTES = 16
"""The frame's fixed header, counted once per message."""
NUMBER_BYTES = 5
"""An integer or a float in msgpack takes 1 to 9 bytes; the middle."""
TEXT_BYTES = 2
TUPLE_BYTES = 3
"""In front of a string's bytes, or of a tuple's or a struct's values."""

_FIXED_KINDS: tuple[Any, ...] = (int, float, bool, type(None))
Sizer = Callable[[Any], int]

fixed_sizes: dict[type, int] = {}
"""Message types that always have the same size; filled by `wire_size`, read first on the hot path."""
_shapes: dict[type, tuple[int, tuple[tuple[str, Sizer], ...]]] = {}


def wire_size(message: Message) -> int:
    """The message's estimated bytes on the wire, frame included."""
    kind = message.__class__
    shape = _shapes.get(kind)
    if shape is None:
        shape = _shapes[kind] = _shape(kind)
        if not shape[1]:
            fixed_sizes[kind] = shape[0]
    size, varying = shape
    for name, sizer in varying:
        size += sizer(getattr(message, name))
    return size


def _shape(kind: type[Message]) -> tuple[int, tuple[tuple[str, Sizer], ...]]:
    """The bytes that do not depend on the values, and the fields that do with what measures them."""
    size = FRAME_BYTES + len("type") + len(kind.__name__) + 3
    varying = []
    for name, hint in typing.get_type_hints(kind).items():
        if name not in kind.__struct_fields__:
            continue
        size += len(name) + 1
        if _is_fixed(hint):
            size += NUMBER_BYTES
        else:
            varying.append((name, _sizer(hint)))
    return size, tuple(varying)


def _is_fixed(hint: Any) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return all(map(_is_fixed, typing.get_args(hint)))
    return hint in _FIXED_KINDS


def _sizer(hint: Any) -> Sizer:
    """What measures a field of this type: for tuples of one kind a formula, else a look at each value."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        item = arguments[0]
        parts = typing.get_args(item) if typing.get_origin(item) is tuple else ()
        if _is_fixed(item):
            return lambda values: TUPLE_BYTES + NUMBER_BYTES * len(values)
        if parts and all(map(_is_fixed, parts)):
            each = TUPLE_BYTES + NUMBER_BYTES * len(parts)
            return lambda values: TUPLE_BYTES + each * len(values)
        if getattr(item, "__supertype__", item) is str:
            return lambda values: TUPLE_BYTES + TEXT_BYTES * len(values) + sum(map(len, values))
        if hasattr(item, "virtual_size"):
            return _batches_size
    return _value_size


def _batches_size(batches: Sequence[Any]) -> int:
    if len(batches) == 1:
        return TUPLE_BYTES + int(batches[0].virtual_size)
    return TUPLE_BYTES + sum([int(batch.virtual_size) for batch in batches])


def _value_size(value: Any) -> int:
    match value:
        case None | bool() | int() | float():
            return NUMBER_BYTES
        case str() | bytes():
            return len(value) + TEXT_BYTES
        case tuple():
            return TUPLE_BYTES + sum(map(_value_size, value))
        case Message():
            return wire_size(value) - FRAME_BYTES
        case msgspec.Struct():
            return TUPLE_BYTES + sum(_value_size(getattr(value, name)) for name in value.__struct_fields__)
    size = getattr(value, "virtual_size", None)
    return size if isinstance(size, int) else len(encode(value))
