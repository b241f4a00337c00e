"""A message whose attachment lies in memory that both ends see: between processes of one machine it is laid
down once, for all who get it.

| frame | from | says |
|---|---|---|
| SHELF | who has much to send | the memory is this file; control: `Shelf` |
| TAKEN | who was told | it can be read, and so many messages were taken from it; control: `Taken` |
| PLACED | who laid it down | a message: control as in MESSAGE, attachment as below |

What is attached to PLACED, the integer little-endian:

| offset | bytes | field |
|---|---|---|
| 0 | 8 | where in the file the batch is |
| 8 | 80 | the batch's header, as it is there |

The header has the batch's length and checksum: whatever else is found at that place is not what was meant.
"""

from struct import Struct
from typing import TypeVar

import msgspec

from qanat.events.errors import MalformedBatch
from qanat.events.layout import HEADER_BYTES, peek
from qanat.events.ranges import Count, Path, Unsigned
from qanat.wire.frame import MalformedFrame

CAPABILITY = "shelf"
"""Said in the handshake by who would take messages from a shelf."""
WORTH_BYTES = 64 * 1024
"""A smaller attachment goes through the socket: that costs no more than to look it up."""
_OFFSET = Struct("<Q")
_T = TypeVar("_T")


class Shelf(msgspec.Struct, frozen=True, array_like=True):
    """A file of this machine; under the same path in another container there is none, or one with other
    numbers."""

    path: Path
    device: Unsigned
    inode: Unsigned


class Taken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    count: Count


_SHELF, _TAKEN = msgspec.msgpack.Decoder(Shelf), msgspec.msgpack.Decoder(Taken)
encode_control = msgspec.msgpack.Encoder().encode


def decode_shelf(control: bytes) -> Shelf:
    return _decoded(_SHELF, control)


def decode_taken(control: bytes) -> Taken:
    return _decoded(_TAKEN, control)


def _decoded(decoder: "msgspec.msgpack.Decoder[_T]", control: bytes) -> _T:
    try:
        return decoder.decode(control)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFrame("malformed", f"a frame about a shelf that cannot be read: {error}") from None


def encode_place(offset: int, batch: memoryview) -> bytes:
    return _OFFSET.pack(offset) + bytes(batch[:HEADER_BYTES])


def decode_place(attachment: memoryview, limit: int) -> tuple[int, int, memoryview]:
    """Where it is, how many bytes it has (at most `limit`), and its header."""
    if len(attachment) != _OFFSET.size + HEADER_BYTES:
        raise MalformedFrame("malformed", f"a place of {len(attachment)} bytes")
    header = attachment[_OFFSET.size :]
    try:
        size = peek(header, limit).size
    except MalformedBatch as error:
        raise MalformedFrame("malformed", f"a place of what is no batch: {error}") from None
    return _OFFSET.unpack_from(attachment)[0], size, header
