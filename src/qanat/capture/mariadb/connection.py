"""Connections to a MariaDB server: statements, and the dump of its binlog as a replica asks for it."""

import random
import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql  # type: ignore[import-untyped]
from pymysql.constants import COMMAND  # type: ignore[import-untyped]

from qanat.capture.errors import BadLogUrl, LogUnreachable, NotSetUp
from qanat.capture.mariadb.packets import Packets
from qanat.capture.mariadb.rights import account_of, grant_log
from qanat.capture.tls import context_of
from qanat.capture.url import LogUrl
from qanat.events.errors import RemoteError

CHUNK_BYTES = 1 << 20
HEARTBEAT_S = 5
"""The server says that it is alive when it has had nothing to say for so long; silence of three times this is
a broken connection."""
GAPS = {1044, 1142, 1143, 1227}
"""Errors that say that a right is missing."""
STRANGERS = {1045, 1698}
"""Errors that say that this user with this password, from here and in this way, is not known."""


NO_TLS = 2026


class RightsMissing(NotSetUp):
    """The user may not do this."""


class LogRefused(RemoteError):
    """The server does not give the log from where it was asked for (error 1236)."""


def _any_number() -> int:
    return random.SystemRandom().randrange(1 << 31, 1 << 32)


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is and how to log in."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    number: int = field(default_factory=_any_number)
    """The server number of this replica: a dump ends another one that has the same, so each reader has its
    own."""

    @classmethod
    def of(cls, url: LogUrl, options: Mapping[str, Any]) -> "Server":
        number = options.get("server_id")
        if number is not None and not 0 < int(number) < 1 << 32:
            raise BadLogUrl(f"{url}: server_id={number} is not between 1 and 4294967295")
        extra = {} if number is None else {"number": int(number)}
        tls = context_of(url, options)
        return cls(url.host, url.port or 3306, url.user or "root", url.password, tls, **extra)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def beside(self) -> "Server":
        """The same server for a second dump, which does not end the first."""
        return replace(self, number=_any_number())

    def connect(self, *, raw: bool = False) -> "Session":
        """`raw`: values come as the server prints them, not as Python's own types."""
        try:
            connection = pymysql.connect(
                host=self.host, port=self.port, user=self.user, password=self.password, charset="utf8mb4",
                autocommit=True, connect_timeout=10, read_timeout=20, write_timeout=60,
                ssl=self.tls, ssl_disabled=self.tls is None,
                **({"conv": {}} if raw else {}),
            )  # fmt: skip
        except pymysql.err.MySQLError as error:
            raise _told(self, error) from None
        return Session(self, connection)


def _told(server: Server, error: Exception, account: str = "") -> RemoteError | NotSetUp:
    code, text = error.args if len(error.args) == 2 else (0, str(error))
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return NotSetUp(
            f"the certificate of the MariaDB server {server} is not accepted: {cause.verify_message}; name"
            " the file of those who vouch for it by the option ssl_ca="
        )
    if code == NO_TLS or isinstance(cause, ssl.SSLError):
        return NotSetUp(f"the connection to the MariaDB server {server} cannot be encrypted: {cause or text}")
    if code in STRANGERS:
        return NotSetUp(
            f"the MariaDB server {server} refuses user {server.user!r}: {text}; correct user and password (in"
            " the URL, or in QANAT_PASSWORD), and say ssl=on if the user must come encrypted"
        )
    if code in GAPS:
        return RightsMissing(
            f"the MariaDB server {server} refuses user {server.user!r}: {text}"
            + (f"; {grant_log(account)}" if account else "")
        )
    if code == 1236:
        return LogRefused(f"the MariaDB server {server} does not give its log: {text}")
    return LogUnreachable(f"the MariaDB server {server} cannot be read: {text}")


class Session:
    """One connection, for statements; or, once `dump` was called, for the events of the log alone."""

    def __init__(self, server: Server, connection: Any) -> None:
        self.server = server
        self._connection = connection
        self._packets = Packets()
        self._heard_s = 0.0
        self._failed: memoryview | None = None
        """An error that came behind events, which are given first."""
        self._ended = False
        self._account = ""

    def query(self, statement: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._query(statement, arguments)
        except (pymysql.err.MySQLError, OSError) as error:
            account = self.account() if error.args and error.args[0] in GAPS else ""
            raise _told(self.server, error, account) from None

    def _query(self, statement: str, arguments: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())

    def account(self) -> str:
        """Whose rights we have, as GRANT names it."""
        if not self._account:
            self._account = account_of(self.value("SELECT CURRENT_USER()"))
        return self._account

    def value(self, statement: str, arguments: Sequence[object] = ()) -> Any:
        rows = self.query(statement, arguments)
        return rows[0][0] if rows else None

    def dump(self, file: str, offset: int, *, after: str | None = None, wait: bool = True) -> None:
        """Asks for all events from this place in the server's files, or after these GTIDs; with `wait` also
        for those to come."""
        settings = ["@mariadb_slave_capability=4", "@master_binlog_checksum=@@global.binlog_checksum"]
        settings += [f"@master_heartbeat_period={HEARTBEAT_S * 1_000_000_000}", "@slave_gtid_strict_mode=0"]
        if after is not None:
            settings += [f"@slave_connect_state={self._connection.escape(after)}"]
        # A reader that takes its time over what it was given is not to be cut off.
        self.query("SET " + ", ".join([*settings, "SESSION net_write_timeout=3600"]))
        name = file.encode()
        self.account()  # for an error that comes in the log's place, after which nothing can be asked
        try:
            head = struct.pack("<IHI", offset, 0 if wait else 1, self.server.number)
            self._connection._execute_command(COMMAND.COM_BINLOG_DUMP, head + name)
        except (pymysql.err.MySQLError, OSError) as error:
            raise _told(self.server, error) from None
        self._heard_s = time.monotonic()

    def events(self, wait_s: float) -> list[memoryview] | None:
        """Events that came, none if none came in time; None when a dump that does not wait is at its end."""
        if self._failed is not None:
            raise self._error(self._failed)
        if self._ended:
            return None
        raw: socket.socket = self._connection._sock
        try:
            # The shortest wait takes a millisecond, which is as long as all else between a commit and its
            # update.
            raw.settimeout(max(wait_s, 0.0))
            chunk = raw.recv(CHUNK_BYTES)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if time.monotonic() - self._heard_s > 3 * HEARTBEAT_S:
                raise LogUnreachable(
                    f"the MariaDB server {self.server} has been silent for {3 * HEARTBEAT_S} s"
                ) from None
            return []
        except OSError as error:
            raise LogUnreachable(
                f"the connection to the MariaDB server {self.server} broke: {error}"
            ) from None
        if not chunk:
            raise LogUnreachable(f"the MariaDB server {self.server} ended the connection")
        self._heard_s = time.monotonic()
        found = []
        for payload in self._packets.feed(chunk):
            status = payload[0] if len(payload) else 0xFE
            if status == 0:
                found.append(payload[1:])
            elif status == 0xFF:
                if found:
                    self._failed = payload
                    return found
                raise self._error(payload)
            else:
                self._ended = True
                return found or None
        return found

    def _error(self, payload: memoryview) -> RemoteError | NotSetUp:
        code = int.from_bytes(payload[1:3], "little")
        text = bytes(payload[9:] if bytes(payload[3:4]) == b"#" else payload[3:]).decode("utf-8", "replace")
        return _told(self.server, pymysql.err.OperationalError(code, text), self._account)

    def close(self) -> None:
        try:
            self._connection._force_close()
        except OSError:
            pass
