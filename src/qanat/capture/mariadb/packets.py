"""Packets of the client protocol, from chunks of bytes as they come: a length of three bytes, a number, the
payload."""

import struct

_HEAD = struct.Struct("<I")
_LONGEST = 0xFFFFFF
"""A payload of this length goes on in the next packet."""


class Packets:
    """Cuts a byte stream into payloads. A payload is a view of the bytes that were fed: nothing is copied but
    what lies on an edge."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._wanted = 4
        self._parts: list[memoryview] = []

    def feed(self, chunk: bytes) -> list[memoryview]:
        self._kept.append(chunk)
        self._kept_bytes += len(chunk)
        if self._kept_bytes < self._wanted:  # a long payload is joined once, when it is whole
            return []
        data = chunk if len(self._kept) == 1 else b"".join(self._kept)
        view = memoryview(data)
        payloads: list[memoryview] = []
        at, end = 0, len(data)
        self._wanted = 4
        unpack = _HEAD.unpack_from
        while at + 4 <= end:
            size = unpack(data, at)[0] & _LONGEST
            after = at + 4 + size
            if after > end:
                self._wanted = 4 + size
                break
            if size == _LONGEST or self._parts:
                self._parts.append(view[at + 4 : after])
                if size < _LONGEST:
                    payloads.append(memoryview(b"".join(self._parts)))
                    self._parts = []
            else:
                payloads.append(view[at + 4 : after])
            at = after
        self._kept = [data[at:]] if at < end else []
        self._kept_bytes = end - at
        return payloads
