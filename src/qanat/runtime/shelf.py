"""Memory on which a node lays down what it has to send to many peers of its machine: once for all of them,
and through no socket.

It is a file without a name, which peers open through /proc: the operating system lets those do so who may
look into this process anyway, and nothing of it is left when the process has ended, in whatever way.
"""

import os
from bisect import insort
from collections import deque
from contextlib import suppress

from qanat.wire.placed import Shelf as Told

_ALIGN = 4096
"""Parts begin at pages."""


class Laid:
    """One attachment on the shelf, until all who were told of it have taken it."""

    __slots__ = ("data", "end", "offset", "readers")

    def __init__(self, offset: int, data: memoryview) -> None:
        self.offset, self.end, self.data = offset, offset + len(data), data
        self.readers = 0

    def __lt__(self, other: "Laid") -> bool:
        return self.offset < other.offset


class Shelf:
    """At most `limit_bytes` lie on it. It is made when first somebody wants to read it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._fd = -1
        self._users = 0
        self._laid: list[Laid] = []
        """In the order of their places."""
        self._known: dict[int, Laid] = {}
        """By the identity of what was laid down, which each holds."""

    def told(self) -> Told | None:
        """What peers need to know to read it; None where there can be none."""
        if self._fd < 0:
            try:
                self._fd = os.memfd_create("qanat-shelf", os.MFD_CLOEXEC)
            except (AttributeError, OSError):
                return None
        found = os.fstat(self._fd)
        return Told(f"/proc/{os.getpid()}/fd/{self._fd}", found.st_dev, found.st_ino)

    def lay(self, data: memoryview) -> Laid | None:
        """For one more reader; None if there is no room."""
        laid = self._known.get(id(data))
        if laid is None:
            laid = self._put(data)
            if laid is None:
                return None
        laid.readers += 1
        return laid

    def release(self, laid: Laid) -> None:
        """One of its readers has it, or is gone."""
        laid.readers -= 1
        if not laid.readers:
            self._laid.remove(laid)
            del self._known[id(laid.data)]

    def used(self, by: int) -> None:
        """So many peers more read it. Its memory is given back when nobody does."""
        self._users += by
        if not self._users and self._fd >= 0:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _put(self, data: memoryview) -> Laid | None:
        laid = Laid(self._gap(len(data)), data)
        if laid.end > self._limit_bytes:
            return None
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], laid.offset + done)
        except OSError:  # no memory is left for it
            return None
        insort(self._laid, laid)
        self._known[id(data)] = laid
        return laid

    def _gap(self, size: int) -> int:
        """The first that is large enough: what was used last is in the processor's caches still."""
        at = 0
        for laid in self._laid:
            if laid.offset - at >= size:
                break
            at = -(-laid.end // _ALIGN) * _ALIGN
        return at


class Reader:
    """A peer that takes things from the shelf, in the order in which it was told of them."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        shelf.used(1)
        self._told: deque[Laid] = deque()
        self._taken = 0
        self.ready = False
        """Whether it has said that it can read the shelf."""

    def lay(self, data: memoryview) -> int | None:
        """Where it lies; None if there is no room."""
        laid = self._shelf.lay(data)
        if laid is None:
            return None
        self._told.append(laid)
        return laid.offset

    def taken(self, count: int) -> bool:
        """So many since it began; False if that cannot be."""
        self.ready = True
        if not 0 <= count - self._taken <= len(self._told):
            return False
        while self._taken < count:
            self._taken += 1
            self._shelf.release(self._told.popleft())
        return True

    def gone(self) -> None:
        while self._told:
            self._shelf.release(self._told.popleft())
        self._shelf.used(-1)
