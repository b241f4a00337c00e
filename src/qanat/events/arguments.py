"""What a public call is given, looked at when it is called: a wrong type is the caller's mistake, told there
and then.

Messages are encoded without a look at their fields, so whatever passes here reaches a server, which cuts off
who sends what it cannot read.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from qanat.events.errors import LocalError, WrongArgument
from qanat.events.layout import NUMBERS_END
from qanat.events.position import Position
from qanat.events.ranges import NAME_MAX, check_name

_T = TypeVar("_T")
_S = TypeVar("_S", bound=msgspec.Struct)

_PLAIN = frozenset((int, float, bool, bytes, type(None)))
_VALUES = (str, int, float, bytes, np.bool_, np.integer, np.floating)
_SHOWN = 60
"""Characters of a value that a message shows."""


def wrong(what: str, wanted: str, value: object) -> WrongArgument:
    """The error that says what the parameter takes and what it was given."""
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return WrongArgument(f"{what} is {wanted}, not {shown} ({type(value).__name__})")


def instance(what: str, value: object, kind: type[_T], wanted: str = "") -> _T:
    """The value, which is of this type."""
    if not isinstance(value, kind):
        raise wrong(what, wanted or f"of type {kind.__name__}", value)
    return value


def text(what: str, value: object) -> str:
    """Text that can be sent: UTF-8 has no place for half a character."""
    if not isinstance(value, str):
        raise wrong(what, "text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrong(what, "text that can be written as UTF-8", value) from None
    return value


def name(what: str, value: object) -> str:
    """Text that is not empty."""
    if not text(what, value):
        raise wrong(what, "a name", value)
    return str(value)


def source(what: str, value: object) -> str:
    """What a client is called, or nothing; its events have that as their source, and servers print it."""
    called = text(what, value)
    if len(called.encode()) > NAME_MAX:
        raise wrong(what, f"at most {NAME_MAX} bytes", value)
    try:
        check_name(called, what)
    except LocalError as error:
        raise WrongArgument(str(error)) from None
    return called


def whole(what: str, value: object, least: int = 0) -> int:
    """A whole number from `least` to 2^63."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise wrong(what, "a whole number", value)
    if not least <= value < NUMBERS_END:
        raise wrong(what, f"a whole number from {least} to 2^63", int(value))
    return int(value)


def seconds(what: str, value: object) -> float:
    """A duration; not a number's text, not a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < NUMBERS_END:
        raise wrong(what, "a number of seconds", value)
    return float(value)


def path(what: str, value: object) -> str:
    """A file or folder."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise wrong(what, "the path of a folder", value)
    return os.fspath(value)


def several(what: str, wanted: str, value: object) -> Iterable[Any]:
    """Things that follow each other; not a text, which would come in letters."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise wrong(what, wanted, value)
    return value


def settings(what: str, value: object, kind: type[_S]) -> _S:
    """Settings of this type, each of the type that it is declared with: a struct by itself takes anything."""
    given = instance(what, value, kind)
    try:
        msgspec.convert(msgspec.structs.asdict(given), kind)
    except msgspec.ValidationError as error:
        raise WrongArgument(f"{what}: {error}") from None
    return given


def position(what: str, value: object) -> Position:
    """A place in a log: (sequence, index)."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise wrong(what, "a Position", value)
    return Position(whole(what, value[0]), whole(what, value[1]))


def attributes_of_event(value: object) -> None:
    """One event's attributes: text that names them, and values of the six types."""
    if not isinstance(value, Mapping):
        raise wrong("attributes", "a dict of names and values", value)
    for key, of in value.items():
        if key.__class__ is not str or not key.isascii():
            text("an attribute's name", key)
        if of.__class__ is str:
            if not of.isascii():
                text(f"attribute {key!r}", of)
        elif of.__class__ not in _PLAIN and not isinstance(of, _VALUES):
            raise wrong(f"attribute {key!r}", "text, a number, a boolean, bytes or None", of)


def rising_positions(value: object) -> tuple[Any, Any]:
    """Sequences and indexes as arrays; whether they rise, the stream looks at."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise wrong("positions", "a pair: the sequences, and the indexes", value)
    sequences, indexes = value
    return (
        _whole_numbers("a position's sequence", sequences, np.uint64, NUMBERS_END - 1),
        _whole_numbers("a position's index", indexes, np.uint32, (1 << 32) - 1),
    )


def _whole_numbers(what: str, values: Any, kind: type, most: int) -> Any:
    if isinstance(values, np.ndarray) and values.dtype == kind and values.ndim == 1 and kind is np.uint32:
        return values
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    if not isinstance(values, np.ndarray | list | tuple | range):
        raise wrong(f"{what}s", "a list or an array of whole numbers", values)
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise wrong(f"{what}s", "a list or an array of whole numbers", values) from None
    if not array.size and array.ndim == 1:
        return array.astype(kind)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise wrong(what, f"a whole number from 0 to {most}", array.tolist())
    if int(array.min()) < 0 or int(array.max()) > most:
        bad = array.min() if int(array.min()) < 0 else array.max()
        raise wrong(what, f"a whole number from 0 to {most}", int(bad))
    return array if array.dtype == kind else array.astype(kind)
