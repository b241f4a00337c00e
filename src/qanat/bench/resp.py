"""The protocol of Redis, as much of it as a benchmark needs: commands out, values in."""

import re
import socket
from typing import TypeAlias

from qanat.events.errors import LocalError

Value: TypeAlias = "bytes | int | list[Value] | None"
"""What Redis answers; a simple string is bytes as well."""

_READ = 1 << 20
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n")
_REFUSED = re.compile(rb"-[A-Z][^\r]*")
_END = b"\r\n"


class RedisRefused(LocalError):
    """Redis answered with an error."""


def encode(*words: bytes) -> bytes:
    """A command."""
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


def decode(data: bytes | bytearray, at: int = 0) -> tuple[Value, int] | None:
    """The value that begins there, and where it ends; None while some of it is yet to come."""
    stop = data.find(_END, at)
    if stop < 0:
        return None
    kind, line, after = data[at : at + 1], bytes(data[at + 1 : stop]), stop + 2
    match bytes(kind):
        case b"+":
            return line, after
        case b"-":
            raise RedisRefused(f"Redis: {line.decode(errors='replace')}")
        case b":":
            return int(line), after
        case b"$":
            return _bulk(data, int(line), after)
        case b"*":
            return _array(data, int(line), after)
    raise RedisRefused(f"Redis: an answer that begins with {bytes(kind)!r}")


def _bulk(data: bytes | bytearray, size: int, at: int) -> tuple[Value, int] | None:
    if size < 0:
        return None, at
    end = at + size
    return (bytes(data[at:end]), end + 2) if len(data) >= end + 2 else None


def _array(data: bytes | bytearray, count: int, at: int) -> tuple[Value, int] | None:
    if count < 0:
        return None, at
    values: list[Value] = []
    for _ in range(count):
        found = decode(data, at)
        if found is None:
            return None
        value, at = found
        values.append(value)
    return values, at


def connect(port: int) -> "Redis":
    """To a server of this machine."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Redis(sock)


class Redis:
    """A connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._data = bytearray()
        self._lines = 0

    def __enter__(self) -> "Redis":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, *words: bytes) -> Value:
        """A command, and its answer."""
        self.sock.sendall(encode(*words))
        return self.answer()

    def answer(self) -> Value:
        """The next one."""
        while (found := decode(self._data)) is None:
            self._more()
        value, end = found
        del self._data[:end]
        return value

    def skip_ids(self, count: int) -> None:
        """Takes the answers of so many `XADD`s, each an ID, in two lines, which are only counted: a client in
        C would take as little time. Those of later ones may have come too."""
        self._lines -= 2 * count
        while self._lines < 0:
            self._more()
            if (refused := _REFUSED.search(self._data)) is not None:
                raise RedisRefused(f"Redis refused an event: {refused[0].decode(errors='replace')}")
            self._lines += self._data.count(b"\n")
            self._data.clear()

    def entries(self, field: bytes, width: int) -> tuple[int, bytes]:
        """Takes the answer of an `XREAD` of one stream whose entries have one field of `width` bytes: how
        many, and the last ID. Entries are found by what is before each payload, and not taken apart: a client
        in C would take as little time."""
        while (head := _HEAD.match(self._data)) is None:
            if self._data and not self._data.startswith(b"*"):
                decode(self._data)  # an error is raised
            self._more()
        count, at = int(head[1]), head.end()
        mark = b"\r\n*2\r\n$%d\r\n%b\r\n$%d\r\n" % (len(field), field, width)
        left, before = count, at
        while True:
            found = self._data.count(mark, at)
            if found:
                before = self._data.rfind(mark)
                at, left = before + len(mark), left - found
            if left <= 0 and len(self._data) >= at + width + 2:
                break
            self._more()
        last = bytes(self._data[self._data.rfind(b"\n", 0, before) + 1 : before])
        del self._data[: at + width + 2]
        return count, last

    def _more(self) -> None:
        part = self.sock.recv(_READ)
        if not part:
            raise ConnectionResetError("Redis closed the connection")
        self._data += part
