"""The frame: what travels over a connection, and over UDP in one piece.

All integers are little-endian.

| offset | bytes | field |
|---|---|---|
| 0 | 4 | body length: control bytes + attachment bytes |
| 4 | 1 | type (below 32: the transport's and the machines'; from 32: the service's own) |
| 5 | 1 | flags: bits 0..2 count the zero bytes that end the control part; the others are 0 |
| 6 | 2 | channel: which service or machine of the peer it is for; 0 is the transport itself |
| 8 | 4 | control length, with the zero bytes that end it |
| 12 | 4 | CRC32C of bytes 0..12 and the control part |
| 16 | control length | control: one MessagePack value, then up to 7 zero bytes |
| … | the rest | attachment: a run of batches laid end to end, each with checksums of its own |

The zero bytes make every frame whose attachment is a multiple of 8 (batches are) a multiple of 8 long,
so the columns of a batch stand aligned in the receiver's buffer.

The checksum covers the lengths, and is checked as soon as the control part is there: a corrupt length is
found before a single byte is allocated for the attachment.
"""

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct

import msgspec

from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError, RemoteError

HEADER_BYTES = 16
FRAME_LIMIT = 16 * 1024 * 1024
CONTROL_LIMIT = 1024 * 1024

Bytes = bytes | bytearray | memoryview

HEADER = Struct("<IBBHII")
_CHECKED = Struct("<IBBHI")
_PADDING = tuple(bytes(n) for n in range(8))


class FrameType(IntEnum):
    """The types below 32. A service numbers its own from 32 to 255."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    PING = 4
    PONG = 5
    GOODBYE = 6
    ERROR = 7
    MESSAGE = 16
    CAST = 17
    COMPRESSED = 18
    SHELF = 19
    PLACED = 20
    TAKEN = 21


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One received frame.

    `attachment` is a view of the receive buffer: valid for as long as it is held, and while it is held
    the whole buffer it came in stays in memory. What is kept for long should be copied.
    """

    type: int
    channel: int
    control: bytes
    attachment: memoryview


class FrameTooLarge(LocalError):
    """A frame that no peer would accept; it was not sent."""


class MalformedFrame(RemoteError):
    """Bytes that are no frame, or one over the limit. `code` is `malformed` or `over_limit`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def encode(
    type_: int,
    channel: int,
    control: bytes = b"",
    attachments: Iterable[Bytes] = (),
    *,
    limit: int = FRAME_LIMIT,
) -> list[Bytes]:
    """Lays out a frame as parts to be written one after another; attachments are not copied."""
    parts: list[Bytes] = [b""]
    attached = 0
    for attachment in attachments:
        attached += attachment.nbytes if isinstance(attachment, memoryview) else len(attachment)
        parts.append(attachment)
    padding = -len(control) & 7
    if padding:
        control += _PADDING[padding]
    size = len(control)
    if attached > limit or size > CONTROL_LIMIT:
        raise FrameTooLarge(
            f"a frame of {size} control and {attached} attached bytes passes the limits of {CONTROL_LIMIT}"
            f" and {limit}; send it in smaller pieces"
        )
    crc = crc32c(control, crc32c(_CHECKED.pack(size + attached, type_, padding, channel, size)))
    parts[0] = HEADER.pack(size + attached, type_, padding, channel, size, crc) + control
    return parts


def decode_one(data: bytes, *, limit: int = FRAME_LIMIT) -> Frame:
    """Reads a datagram, which is one whole frame and nothing else; raises `MalformedFrame`."""
    if len(data) > limit:
        raise MalformedFrame("over_limit", f"a datagram of {len(data)} bytes, over the limit of {limit}")
    if len(data) < HEADER_BYTES:
        raise MalformedFrame("malformed", f"a datagram of {len(data)} bytes is shorter than a frame's header")
    length, type_, flags, channel, size, crc = HEADER.unpack_from(data)
    body = HEADER_BYTES + size
    if length != len(data) - HEADER_BYTES or size > length or flags > 7 or flags > size:
        raise MalformedFrame("malformed", "a datagram's lengths or flags cannot be")
    if crc32c(data[HEADER_BYTES:body], crc32c(data[:12])) != crc:
        raise MalformedFrame("malformed", "a datagram's header or control part does not match its checksum")
    return Frame(type_, channel, data[HEADER_BYTES : body - flags], memoryview(data)[body:])
