"""What one machine's channel has to do with shelves: with that of this node, for its peers, and with those of
peers on this machine."""

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from qanat.events.layout import HEADER_BYTES
from qanat.runtime.connection import Connection
from qanat.runtime.places import Reading, is_same
from qanat.runtime.shelf import Reader
from qanat.wire.frame import Bytes, Frame, FrameType, MalformedFrame, encode
from qanat.wire.placed import (
    CAPABILITY,
    WORTH_BYTES,
    Shelf,
    Taken,
    decode_place,
    decode_shelf,
    decode_taken,
    encode_control,
    encode_place,
)

if TYPE_CHECKING:
    from qanat.runtime.driver import Driver

_KEPT_BYTES = 24 * 1024 * 1024
"""Of memory for what was taken: as much as a peer's window, and what an application holds of it."""
_PATH = re.compile(r"/proc/[0-9]+/fd/[0-9]+")
"""No other file is opened because a peer says so."""


class Placing:
    """Keeps in `connection.state` a `Reader` for a peer that was offered our shelf, or a `Taker` for one that
    offered its own."""

    def __init__(self, driver: "Driver", channel: int) -> None:
        self._driver, self._channel = driver, channel
        self._surprised: set[str] = set()
        """Peers on whose shelf was not what they said: on the next connection they send the bytes."""

    def on_connect(self, connection: Connection) -> None:
        shelf = self._driver.shelf
        if shelf is None or not connection.is_local or CAPABILITY not in connection.capabilities:
            return
        told = shelf.told()
        if told is not None:
            connection.state[self._channel] = Reader(shelf)
            connection.send(FrameType.SHELF, self._channel, encode_control(told))

    def on_close(self, connection: Connection) -> None:
        match connection.state.pop(self._channel, None):
            case Reader() as reader:
                reader.gone()
            case Taker() as taker:
                taker.close()

    # --- sending ------------------------------------------------------------------------------------

    def parts(self, to: str, control: bytes, attachments: list[Bytes], parts: list[Bytes]) -> list[Bytes]:
        """What to send of a message: `parts`, or where it lies instead; and what we have taken since we said
        so last."""
        connection = self._driver.links.peers.get(to)
        state = None if connection is None else connection.state.get(self._channel)
        if isinstance(state, Taker) and state.unsaid:
            return [*self._taken(state), *parts]
        if isinstance(state, Reader) and state.ready and len(attachments) == 1:
            batch = attachments[0]
            if isinstance(batch, memoryview) and len(batch) >= WORTH_BYTES:
                offset = state.lay(batch)
                if offset is not None:
                    self._driver.traffic.placed_bytes.value += len(batch)
                    return encode(FrameType.PLACED, self._channel, control, [encode_place(offset, batch)])
        return parts

    def _taken(self, taker: "Taker") -> list[Bytes]:
        taker.unsaid = False
        return encode(FrameType.TAKEN, self._channel, encode_control(Taken(taker.count)))

    # --- receiving ----------------------------------------------------------------------------------

    def heard(self, connection: Connection, frame: Frame) -> None:
        """Of a shelf."""
        state = connection.state.get(self._channel)
        if frame.type == FrameType.TAKEN:
            if not isinstance(state, Reader) or not state.taken(decode_taken(frame.control).count):
                raise MalformedFrame("malformed", "the peer has taken what was not laid down for it")
            return
        told = decode_shelf(frame.control)
        if connection.peer.name in self._surprised:
            self._surprised.discard(connection.peer.name)
        elif state is None and connection.is_local and CAPABILITY in self._driver.capabilities:
            taker = Taker.of(told)
            if taker is not None:
                connection.state[self._channel] = taker
                connection.send_parts(self._taken(taker))

    def take(self, connection: Connection, place: memoryview) -> memoryview:
        taker = connection.state.get(self._channel)
        if not isinstance(taker, Taker):
            raise MalformedFrame("malformed", "a message lies on a shelf that is not known")
        offset, size, header = decode_place(place, self._driver.settings.frame_limit_bytes)
        try:
            return taker.take(offset, size, header)
        except OSError as error:
            raise MalformedFrame("malformed", f"a message is not where it was laid down: {error}") from None

    def surprise(self, connection: Connection) -> None:
        self._surprised.add(connection.peer.name)


class Taker:
    """A peer's shelf, as far as it is open here."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._reading = Reading(_KEPT_BYTES)
        self.count = 0
        self.unsaid = False
        """Whether something was taken that the peer was not told of. It hears so with the next that it is
        told anyway."""

    @staticmethod
    def of(shelf: Shelf) -> "Taker | None":
        """None if it cannot be seen from here, or is something else here."""
        if _PATH.fullmatch(shelf.path) is None:
            return None
        fd = -1
        try:
            fd = os.open(shelf.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            found = os.fstat(fd)
        except OSError:
            found = None
        if found is not None and stat.S_ISREG(found.st_mode) and is_same(found, shelf.device, shelf.inode):
            return Taker(fd)
        with suppress(OSError):
            os.close(fd)
        return None

    def take(self, offset: int, size: int, header: memoryview) -> memoryview:
        """Raises OSError if something else is there. That the rest is what the header says is for its
        checksum to show."""
        data = self._reading.read(self._fd, offset, size)
        if data[:HEADER_BYTES] != header:
            raise OSError("something else lies there")
        self.count += 1
        self.unsaid = True
        return data

    def close(self) -> None:
        os.close(self._fd)
