"""A message whose attachment is compressed: what goes over a slow or costly link.

Frame type COMPRESSED. Its control part is a prefix and then the message's own control part; all integers are
little-endian:

| offset | bytes | field |
|---|---|---|
| 0 | 1 | codec: 1 is LZ4 (frame format), 2 is Zstandard |
| 1 | 3 | zero |
| 4 | 4 | bytes of the attachment as it was |
| 8 | 4 | bytes of the attachment as it is sent, without the zero bytes that fill it up to a multiple of 8 |

The length as it was is checked against the limit of frames before anything is allocated, and the batches
inside have their checksums.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Literal

import pyarrow as pa

from qanat.wire.frame import Bytes, MalformedFrame

Codec = Literal["", "lz4", "zstd"]

WORTH_BYTES = 1024
"""A smaller attachment is sent as it is: the saving would be less than what else a frame costs."""
_NUMBERS = {"lz4": 1, "zstd": 2}
_CODECS = {number: pa.Codec(name) for name, number in _NUMBERS.items()}
_PREFIX = Struct("<BxxxII")


def pack(codec: str, control: bytes, attachments: Sequence[Bytes]) -> tuple[bytes, list[Bytes]] | None:
    """The control part and the attachment of a COMPRESSED frame; None if it would not be smaller."""
    size = sum(memoryview(part).nbytes for part in attachments)
    if size < WORTH_BYTES:
        return None
    number = _NUMBERS[codec]
    whole = attachments[0] if len(attachments) == 1 else b"".join(attachments)
    packed: bytes = _CODECS[number].compress(whole, asbytes=True)
    if len(packed) + _PREFIX.size + 8 > size:
        return None
    return _PREFIX.pack(number, size, len(packed)) + control, [packed, bytes(-len(packed) & 7)]


def unpack(control: bytes, attachment: memoryview, limit: int) -> tuple[bytes, memoryview]:
    """The message's own control part and its attachment; raises `MalformedFrame`."""
    if len(control) < _PREFIX.size:
        raise MalformedFrame("malformed", "a compressed message without its prefix")
    number, size, packed_size = _PREFIX.unpack_from(control)
    codec = _CODECS.get(number)
    if codec is None or packed_size > len(attachment) or len(attachment) - packed_size > 7:
        raise MalformedFrame("malformed", "a compressed message whose prefix cannot be")
    if size > limit:
        raise MalformedFrame("over_limit", f"a compressed message of {size} bytes, over the limit of {limit}")
    try:
        whole = codec.decompress(attachment[:packed_size], decompressed_size=size)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise MalformedFrame("malformed", f"a compressed message that cannot be read: {error}") from None
    return control[_PREFIX.size :], memoryview(whole).cast(
        "B"
    )  # Arrow gives signed bytes, the log takes plain ones
