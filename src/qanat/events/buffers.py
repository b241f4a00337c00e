"""Memory that is used again once nobody looks at it."""

_ROUND = 256 * 1024


def unseen(buffer: bytearray) -> bool:
    """Whether no view of the buffer is left: CPython refuses to resize a bytearray that is exported."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True


class Buffers:
    """At most `limit_bytes` of used memory are watched for the moment that they are free again: fresh memory
    costs a page fault for every 4 KiB."""

    __slots__ = ("_limit_bytes", "_used")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used: list[bytearray] = []

    def room(self, size: int) -> memoryview:
        """So many bytes that nobody else sees, with anything in them."""
        for candidate in self._used:
            if len(candidate) >= size and unseen(candidate):
                return memoryview(candidate)[:size]
        fresh = bytearray(-(-size // _ROUND) * _ROUND)
        if len(fresh) <= self._limit_bytes:
            self._used.append(fresh)
            while sum(map(len, self._used)) > self._limit_bytes:
                del self._used[0]
        return memoryview(fresh)[:size]
