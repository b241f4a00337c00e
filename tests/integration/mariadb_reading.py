"""Readers of a real MariaDB server, and all that they read."""

from __future__ import annotations

import time

from tests.servers.mariadb import MariadbServer

from qanat.capture import LogReader, Updates
from qanat.capture.mariadb.connection import Server
from qanat.capture.updates import Update
from qanat.capture.url import open_reader, parse_log_url
from qanat.events.position import Position

DEADLINE_S = 300


def reader_of(server: MariadbServer, database: str = "", **options: object) -> LogReader:
    return open_reader(server.url + database, **options)


def read_all(reader: LogReader, limit: int = 1000) -> list[Update]:
    """Everything up to what is committed now."""
    latest = reader.latest()
    found: list[Update] = []
    deadline = time.monotonic() + DEADLINE_S
    upto = Position(0)
    while upto < latest:
        assert time.monotonic() < deadline
        part = reader.read(limit, 1)
        assert isinstance(part, Updates), part
        found += part.rows()
        upto = part.upto or upto
    return found


def log_server(server: MariadbServer) -> Server:
    return Server.of(parse_log_url(server.url), {})
