"""What publishers are answered, many at a time: one write for each connection."""

from typing import TypeAlias

from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.frame import Bytes, encode
from qanat.wire.streams import OPENED, REFUSED, STORED, Opened, Refused, Stored, encode_control

Answer: TypeAlias = Stored | Opened | Refused
_TYPES = {Stored: STORED, Opened: OPENED, Refused: REFUSED}


class Answers:
    """Collects answers, in order; `send` lets them go."""

    def __init__(self) -> None:
        self._frames: dict[Connection, list[Bytes]] = {}

    def add(self, connection: Connection, answer: Answer) -> None:
        frame = encode(_TYPES[type(answer)], STREAMS_CHANNEL, encode_control(answer))
        self._frames.setdefault(connection, []).extend(frame)

    def send(self) -> None:
        for connection, parts in self._frames.items():
            connection.send_parts(parts)
