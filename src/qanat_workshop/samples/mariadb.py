"""A real log of MariaDB 10.11 with every type of column and kind of event, for tests and for fuzzing; and
what takes one apart."""

from collections.abc import Iterator
from importlib.resources import files

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb.decode import Decoder
from qanat.capture.mariadb.decode_events import CHECKSUM_BYTES, HEADER_BYTES, Kind
from qanat.capture.updates import Updates

MAGIC = b"\xfebin"


def sample() -> bytes:
    return (files(__package__) / "mariadb.binlog").read_bytes()


def events_of(data: bytes) -> Iterator[memoryview]:
    """The events of a log file."""
    if data[:4] != MAGIC:
        raise MalformedLog("a log file does not begin as one")
    view = memoryview(data)
    at = 4
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if size < HEADER_BYTES or at + size > len(data):
            raise MalformedLog(f"the log file is cut short at {at}")
        yield view[at : at + size]
        at += size


def decode_file(data: bytes, domain: int = 0) -> Updates:
    """All updates of one log file."""
    decoder = Decoder(domain)
    for event in events_of(data):
        decoder.feed(event)
    updates = decoder.take()
    if decoder.unread:
        raise decoder.unread[0]
    return updates


def unchecked(data: bytes) -> bytes:
    """The same log as a server with `binlog_checksum=NONE` writes it, so that a changed byte reaches what
    decodes it."""
    made = [MAGIC]
    for event in events_of(data):
        head, body = bytearray(event[:HEADER_BYTES]), bytes(event[HEADER_BYTES:])
        if event[4] == Kind.FORMAT:
            body = body[: -CHECKSUM_BYTES - 1] + bytes(1 + CHECKSUM_BYTES)
        else:
            body = body[:-CHECKSUM_BYTES]
        head[9:13] = (HEADER_BYTES + len(body)).to_bytes(4, "little")
        made += [bytes(head), body]
    return b"".join(made)


def corpus() -> list[bytes]:
    """The sample's transactions, each as a small log of its own without checksums: what is mutated to look
    for bytes that break the decoder."""
    head: list[bytes] = []
    logs: list[list[bytes]] = []
    for event in events_of(unchecked(sample())):
        if event[4] == Kind.GTID:
            logs.append([])
        (logs[-1] if logs else head).append(bytes(event))
    return [b"".join([MAGIC, *head, *log]) for log in logs]
