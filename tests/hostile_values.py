"""Messages made from their types alone: valid in every field, and as far out as its range allows; or not
valid at all.

What a peer can know (sessions, tokens, names) it takes from what it heard: `Maker.hear` looks through
messages for numbers and texts.
"""

from __future__ import annotations

import enum
import random
import types
import typing
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from tests.unit.wire.message_types import fields_of, parts

from qanat.events.batch import Batch, Kind
from qanat.events.errors import QanatError
from qanat.events.tombstones import gc_event, tombstone

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 32,
    1 << 48,
    1 << 56,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
TEXTS = (
    "",
    "/",
    "..",
    "a",
    "a" * 255,
    "~x",
    "größe",
    "x@127.0.0.1:9",
    "x@[::1]:9",
    "/chains",
    "upto 99",
    "older than 1us",
    "\u0000",
    "\x1b[2J",
    "😀" * 50,
)
KNOWN_MAX = 400


class Maker:
    """Makes values of types; `known` are those that it takes most often."""

    def __init__(self, rng: random.Random, *known: Any) -> None:
        self.rng = rng
        self.numbers: list[int] = [each for each in known if isinstance(each, int)]
        self.texts: list[str] = [each for each in known if isinstance(each, str)]
        self._length = 1
        """Of all lists in a message: those of one often belong together."""

    def hear(self, value: Any, depth: int = 0) -> None:
        """Takes the numbers and texts of what was heard."""
        if isinstance(value, bool) or depth > 6:
            return
        if isinstance(value, int) and value not in NUMBERS:
            _note(self.numbers, value, self.rng)
        elif isinstance(value, str) and value and len(value) < 300:
            _note(self.texts, value, self.rng)
        elif isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                self.hear(getattr(value, name), depth + 1)
        elif isinstance(value, tuple | list):
            for each in value[:20]:
                self.hear(each, depth + 1)

    def message(self, kind: type[Any]) -> Any:
        """One that can be made; not every field fits every other."""
        for _ in range(300):
            self._length = self.rng.choice((0, 1, 1, 2, 3, 20))
            with suppress(ValueError):
                return kind(
                    **{name: self.value(each) for name, each in fields_of(kind).items() if name != "__"}
                )
        raise AssertionError(f"no {kind.__name__} could be made")

    def value(self, kind: Any) -> Any:
        kind, metas = parts(kind)
        rng, origin = self.rng, typing.get_origin(kind)
        if origin in (typing.Union, types.UnionType):
            return self.value(rng.choice(typing.get_args(kind)))
        if origin is typing.Literal:
            return rng.choice(typing.get_args(kind))
        if kind is bool:
            return rng.random() < 0.5
        if kind in (int, float):
            return self._number(kind, metas)
        if kind in (str, bytes):
            return self._text(kind, metas)
        if kind is type(None):
            return None
        if kind is Batch:
            return self.batch()
        if kind is msgspec.Raw:
            return msgspec.Raw(msgspec.msgpack.encode(self.anything()))
        if origin is tuple:
            inside = typing.get_args(kind)
            if inside[-1] is not ...:
                return tuple(self.value(each) for each in inside)
            return tuple(self.value(inside[0]) for _ in range(self._length))
        if origin is dict:
            key, of = typing.get_args(kind)
            return {self.value(key): self.value(of) for _ in range(rng.choice((0, 1, 3)))}
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return rng.choice(list(kind))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.message(kind)
        if isinstance(kind, type) and issubclass(kind, tuple):
            return kind(*(self.value(each) for each in fields_of(kind).values()))
        raise AssertionError(f"{kind!r} cannot be made")

    def _number(self, kind: type, metas: list[msgspec.Meta]) -> Any:
        low: Any = max((m.ge for m in metas if m.ge is not None), default=-(1 << 63))
        highs: list[Any] = [m.le if m.le is not None else (m.extra or {}).get("le") for m in metas]
        high = min((each for each in highs if each is not None), default=(1 << 64) - 1)
        if kind is float:
            return self.rng.choice((low, high, 0.5, 1.0, 5e-324))
        choice = self.rng.random()
        if choice < 0.6 and self.numbers:
            found = self.rng.choice(self.numbers) + self.rng.choice((0, 0, 0, 0, 1, -1))
        elif choice < 0.8:
            found = self.rng.choice((low, low + 1, high, high - 1))
        else:
            found = self.rng.choice(NUMBERS)
        return min(max(found, low), high)

    def _text(self, kind: type, metas: list[msgspec.Meta]) -> Any:
        limit = min((m.max_length for m in metas if m.max_length is not None), default=1 << 20)
        text = self.rng.choice(self.texts if self.texts and self.rng.random() < 0.6 else TEXTS)
        if self.rng.random() < 0.05:
            text = "x" * min(limit, 5_000)
        return text[:limit] if kind is str else text.encode()[:limit]

    def batch(self, stream: int | None = None) -> Batch:
        """Any that decodes."""
        rng = self.rng
        stream = stream if stream is not None else self.rng.choice(self.numbers or [1]) & (1 << 64) - 1
        first = (
            rng.choice((0, 0, 1, 1, 2, 3, 100, 1 << 62, (1 << 63) - 100))
            if rng.random() < 0.7
            else abs(rng.choice(self.numbers or [1])) % (1 << 62)
        )
        count = rng.choice((0, 1, 2, 10))
        more: dict[str, Any] = {"first": first}
        with suppress(QanatError):
            choice = rng.randrange(8)
            if choice == 0 and first:
                return tombstone(
                    stream, first, min(first + rng.choice((0, 9, 1 << 40, 1 << 62)), (1 << 63) - 2)
                )
            if choice == 1:
                return gc_event(
                    stream,
                    rng.choice(("upto 9", "keep last 1", "same key", "older than 1ms", "all")),
                    time_us=rng.choice((0, 1 << 62)),
                )
            if choice == 2:
                more |= {
                    "source": rng.choice(self.texts or ["x"])[:99],
                    "position": rng.choice((0, 1, 9, 1 << 62, (1 << 63) - 20)),
                }
            elif choice == 3:
                sequences = np.sort(np.array([rng.choice(NUMBERS) for _ in range(count)], np.uint64))
                more |= {
                    "source": rng.choice(self.texts or ["x"])[:99],
                    "positions": (sequences, np.arange(count, dtype=np.uint32)),
                }
            elif choice == 4:
                more |= {"times": [rng.choice((-(1 << 63), (1 << 63) - 1, 0)) for _ in range(count)]}
            elif choice == 5:
                more |= {
                    "kinds": [Kind.DATA] * count,
                    "keys": [b"k" * rng.choice((0, 1, 300)) for _ in range(count)],
                }
            elif choice == 6 and count:
                more |= {"span": count + rng.choice((1, 1 << 20)), "seqs": list(range(first, first + count))}
            elif choice == 7:
                more |= {"attributes": {"a": [pa.array([rng.choice((0, -1, 5)) for _ in range(count)])]}}
            return Batch.build(stream, [b"x" * rng.choice((0, 1, 1_000)) for _ in range(count)], **more)
        return Batch.build(stream, [b"x"], first=max(1, first))

    def anything(self, depth: int = 0) -> Any:
        """No message at all, as MessagePack can say it."""
        rng = self.rng
        match rng.randrange(8 if depth < 3 else 5):
            case 0:
                return rng.choice((-(1 << 63), -1, *NUMBERS))
            case 1:
                return rng.choice(TEXTS)
            case 2:
                return rng.choice((float("nan"), float("inf"), -0.0, True, None))
            case 3:
                return b"\xff" * rng.choice((0, 1, 5_000))
            case 4:
                return []
            case 5:
                return [self.anything(depth + 1) for _ in range(rng.choice((1, 3, 50)))]
            case _:
                return {
                    rng.choice(("type", "stream", "epoch", *TEXTS[:5])): self.anything(depth + 1)
                    for _ in range(4)
                }

    def spoilt(self, message: Any) -> Any:
        """A message as plain values, with something in it that its range does not allow."""
        plain = msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=lambda _: 0)
        places = list(_places(plain))
        if not places:
            return plain
        within, key = self.rng.choice(places)
        within[key] = self.anything(2)
        return plain


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items):
        if key != "type":
            yield value, key
        yield from _places(each)


def _note(known: list[Any], value: Any, rng: random.Random) -> None:
    if value not in known[-50:]:
        known.append(value)
        if len(known) > KNOWN_MAX:
            del known[rng.randrange(len(known))]
