"""What a field of a message may be, whoever sent it: decoders refuse the rest, so that no machine ever sees
it.

A message names these types instead of plain `int`, `str`, `bytes`, `float` and `tuple[…, ...]`; a test looks
through all messages for a field that does not. docs/limits.md has the table. The encoders do not check: what
we send is ours to keep right.
"""

import re
from typing import Annotated, TypeAlias

from msgspec import Meta

from qanat.events.errors import LocalError

_INT_MAX = (1 << 63) - 1
MANY = 1 << 17
"""Entries of a list: more do not fit the control part of a frame anyway, or hardly."""
NAME_MAX = 255
"""Of streams and sources, in bytes, and of most other names, in characters."""
_UNPRINTABLE = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, ends of lines and what turns the direction of a line: with them, a name prints as
something else than it is."""
PRINTED = rf"\A[^{_UNPRINTABLE}]*\Z"
_bad = re.compile(f"[{_UNPRINTABLE}]")

# Numbers

Count: TypeAlias = Annotated[int, Meta(ge=0, le=_INT_MAX)]
"""Whatever is counted up: epochs, rounds, sessions, requests, tokens, and sequence numbers where 0 is
none."""
SeqNumber: TypeAlias = Annotated[int, Meta(ge=1, le=_INT_MAX)]
"""A stream's sequence number: from 1, below 2^63, so that adding one never overflows."""
Unsigned: TypeAlias = Annotated[int, Meta(ge=0, extra={"le": (1 << 64) - 1})]
"""64 bits without a sign; MessagePack has no greater number."""
StreamId: TypeAlias = Unsigned
SourceSequence: TypeAlias = Unsigned
SourceIndex: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Size: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 50)]
"""Bytes, or a credit of bytes."""
Micros: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]
"""A duration: 285 years."""
Time: TypeAlias = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""Microseconds since the epoch, of a person's choice: whoever adds a duration to it never overflows."""
Version: TypeAlias = Annotated[int, Meta(ge=-1, le=_INT_MAX)]
Small: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Weight: TypeAlias = Annotated[float, Meta(ge=0.0, le=1e9)]

# Texts

Name: TypeAlias = Annotated[str, Meta(max_length=NAME_MAX, pattern=PRINTED)]
NodeName: TypeAlias = Annotated[str, Meta(max_length=512, pattern=PRINTED)]
"""Of nodes, members and replicas: a path of names, with an address and an incarnation."""
Path: TypeAlias = Annotated[str, Meta(max_length=4_096, pattern=PRINTED)]
"""A file, an address, a node of the coordinator's tree."""
Code: TypeAlias = Annotated[str, Meta(max_length=64, pattern=PRINTED)]
Reason: TypeAlias = Annotated[str, Meta(max_length=1 << 17)]
"""For people. It may quote what it is about, so it may have anything in it: whoever prints it escapes."""
Shard: TypeAlias = Annotated[str, Meta(max_length=1 << 17)]
"""A datastore's own value, whatever it is."""
Text: TypeAlias = Annotated[str, Meta(max_length=1 << 17)]
"""A filter as it was written; its own limit is stricter, and says where."""
Blob: TypeAlias = Annotated[bytes, Meta(max_length=1 << 20)]


def check_name(name: str, what: str) -> None:
    """Refuses a name that does not print as what it is."""
    found = _bad.search(name)
    if found is not None:
        raise LocalError(
            f"{what} has no control characters: {name!r} has {found[0]!r} at character {found.start() + 1};"
            " take another name"
        )


def printable(text: str, keep: str = "") -> str:
    """The same with what does not print as what it is written as JSON writes it; but for the characters of
    `keep`, such as ends of lines."""
    if text.isprintable():  # as usual, and then nothing of it is in the way either
        return text
    return _bad.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)
