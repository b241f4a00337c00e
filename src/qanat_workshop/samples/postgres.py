"""A real stream of PostgreSQL 15 with every kind of message and many types, for tests and for fuzzing; and
what takes one apart.

In the file each message has its length before it, 32 bits little-endian.
"""

from collections.abc import Sequence
from importlib.resources import files

from qanat.capture.errors import MalformedLog
from qanat.capture.postgres.assemble import Assembler
from qanat.capture.postgres.messages import Kind
from qanat.capture.updates import Run, Updates

_DESCRIBING = (Kind.RELATION, Kind.TYPE)


def sample() -> bytes:
    return (files(__package__) / "postgres.pgoutput").read_bytes()


def messages_of(data: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            raise MalformedLog(f"the file is cut short at {at}")
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def file_of(messages: Sequence[bytes]) -> bytes:
    return b"".join(len(message).to_bytes(4, "little") + message for message in messages)


def decode_file(data: bytes) -> Updates:
    """All updates of a file."""
    assembler = Assembler("sample")
    try:
        return Updates([item for item in assembler.feed(messages_of(data)) if isinstance(item, Run)])
    finally:
        assembler.close()


def corpus() -> list[bytes]:
    """Its transactions one by one, each with the descriptions of tables that it needs; and the one that came
    in parts."""
    pieces: list[bytes] = []
    described: dict[bytes, bytes] = {}
    one: list[bytes] = []
    messages = messages_of(sample())
    for at, message in enumerate(messages):
        if message[0] == Kind.STREAM_START:
            return [*pieces, file_of(messages[at:])]
        if message[0] == Kind.BEGIN:
            one = [*described.values()]
        elif message[0] in _DESCRIBING:
            described[message[:5]] = message
        one.append(message)
        if message[0] == Kind.COMMIT:
            pieces.append(file_of(one))
    return pieces
