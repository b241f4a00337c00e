"""What happened, in order: hashed always, kept only at its tail, written out in full when asked.

An entry is a tuple `(time_us, kind, node, ...)` of plain values and messages. Entries pile up in a list
and are encoded and hashed a few hundred at a time: encoding is canonical (msgpack with fixed order), so
the same run gives the same hash in any process, whatever its `PYTHONHASHSEED`. Messages are immutable,
so encoding them late is safe; everything else that a machine hands over is encoded at once.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, TextIO

import msgspec

from qanat.events.errors import LocalError
from qanat.kernel import Address

Entry = tuple[Any, ...]

FLUSH_ENTRIES = 512
"""Entries hashed at once: enough to make the per-call cost vanish, few enough to stay in cache."""
STORY_ENTRIES = 40
"""Entries that a violation shows: the last few hundred milliseconds of most runs, one screen long."""


def _canonical(value: Any) -> Any:
    """Stand-ins for what msgspec cannot encode: batches by their identity, not their bytes."""
    if hasattr(value, "virtual_size"):
        return ("batch", value.stream, value.first, value.last, value.count, value.virtual_size)
    raise LocalError(
        f"a {type(value).__name__} cannot go into a trace: give plain values, tuples, dataclasses or structs"
    )


_encoder = msgspec.msgpack.Encoder(enc_hook=_canonical, order="deterministic")
encode = _encoder.encode
"""Canonical bytes of any traceable value."""


def _array_header_bytes(length: int) -> int:
    return 1 if length < 16 else 3 if length < 65536 else 5


class Trace:
    """A run's trace. `entries` is what has not been hashed yet; append to it, and call `flush` now and
    then."""

    __slots__ = ("entries", "_hash", "_previous", "_names", "_out", "count")

    def __init__(self, out: TextIO | None = None) -> None:
        self.entries: list[Entry] = []
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._previous: list[Entry] = []
        self._names: Sequence[Address] = ()
        self._out = out

    def begin(self, names: Sequence[Address]) -> None:
        """State the nodes; entries name them by their place in this list."""
        self._names = names
        self._hash.update(encode(list(names)))

    def note(self, time_us: int, kind: str, node: int, *rest: Any) -> None:
        """Add an entry off the hot path, encoding at once what could still change."""
        self.entries.append((time_us, kind, node, *(encode(part) for part in rest)))

    def flush(self) -> None:
        """Hash what has piled up; how often this is called does not change the hash."""
        entries = self.entries
        if not entries:
            return
        data = encode(entries)
        self._hash.update(memoryview(data)[_array_header_bytes(len(entries)) :])
        self.count += len(entries)
        if self._out is not None:
            self._out.writelines(f"{self.line(entry)}\n" for entry in entries)
        self._previous = (self._previous + entries)[-STORY_ENTRIES:]
        entries.clear()

    def digest(self) -> str:
        self.flush()
        return self._hash.hexdigest()

    def story(self) -> list[str]:
        """The last entries, one readable line each."""
        return [self.line(entry) for entry in (self._previous + self.entries)[-STORY_ENTRIES:]]

    def line(self, entry: Entry) -> str:
        time_us, kind, node, *rest = entry
        where = self._names[node] if 0 <= node < len(self._names) else "world"
        if kind == "message":
            source, message = rest
            text = f"from {self._names[source]}: {message!r}"
        else:
            text = " ".join(_plain(part) for part in rest)
        return f"{time_us / 1e6:12.6f}  {where:<16} {kind:<8} {text}".rstrip()


def _plain(part: Any) -> str:
    if isinstance(part, bytes):
        value = msgspec.msgpack.decode(part)
        if isinstance(value, dict):
            return " ".join(f"{key}={item}" for key, item in value.items())
        return str(value)
    return str(part)
