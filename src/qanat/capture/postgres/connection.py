"""Connections to PostgreSQL: one for questions, one for the replication stream."""

import codecs
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from select import select
from typing import Any

import psycopg2
from psycopg2.extras import LogicalReplicationConnection

from qanat.capture.errors import LogUnreachable, NotSetUp
from qanat.capture.postgres.types import SESSION
from qanat.capture.tls import libpq_parameters
from qanat.capture.url import LogUrl
from qanat.events.errors import RemoteError

READ_BYTES = 8 << 20
"""What one read takes from the stream at most, so that large rows do not fill memory; a single row may be
larger."""
UNTRANSLATABLE = ("22021", "22P05")
"""A text that has no UTF-8: bytes that are none of the database's encoding, or of one that checks nothing
(SQL_ASCII)."""
BUSY = 64
"""So many messages at once are a stream that is not waited for by anybody in a hurry."""
GATHER_S = 0.003
"""How long more is waited for then."""
_STEP = 512
_NOT_SECURE = (
    "certificate verify failed",
    "server certificate for",
    "server does not support SSL",
    "root certificate",
    "could not load",
    "invalid sslmode",
    "sslmode value",
)
"""libpq says by words alone that a connection failed for the sake of its encryption."""
STANDBY_DECODES = 160000
"""The first version whose standbys can decode their WAL."""


def codec_of(encoding: str) -> str:
    """As Python calls an encoding of PostgreSQL's; empty if it has none, or needs none."""
    try:
        name = codecs.lookup(encoding.replace("WIN", "cp").replace("KOI8", "koi8-")).name
    except LookupError:
        return ""
    return "" if name == "utf-8" else name


def parameters(url: LogUrl) -> dict[str, Any]:
    """As libpq names them. What is not given is left to libpq: its environment, its password file."""
    named = {
        "host": url.host,
        "port": url.port,
        "user": url.user,
        "password": url.password,
        "dbname": url.name,
    }
    return {name: value for name, value in named.items() if value} | libpq_parameters(url, url.options)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the driver as ours."""
    try:
        yield
    except psycopg2.errors.InsufficientPrivilege as error:
        raise NotSetUp(f"{what}: {_sentence(error)}; `--check` says what to change") from error
    except psycopg2.OperationalError as error:
        said = _sentence(error)
        if error.pgcode is None and any(words in said for words in _NOT_SECURE):
            raise NotSetUp(f"{what}: the connection is not encrypted as was asked: {said}") from error
        raise LogUnreachable(f"{what}: {said}") from error
    except psycopg2.Error as error:
        raise RemoteError(f"{what}: {_sentence(error)}") from error


def _settings(**changed: str) -> str:
    return " ".join(f"-c {name}={value}" for name, value in (SESSION | changed).items())


def _sentence(error: psycopg2.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class Questions:
    """An ordinary session for what is asked about the server; opened when it is needed, and again after it
    broke."""

    def __init__(self, url: LogUrl, *, settled: bool = False) -> None:
        """`settled`: under the settings of the stream, so that values have the same texts."""
        self._url = url
        self._settings = _settings() if settled else ""
        self._connection: Any = None

    def ask(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Each statement is its own transaction."""
        with translated(f"{self._url}"):
            try:
                return self._ask(statement, arguments)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                if self._connection is None:
                    raise
                self.close()  # it was idle for long, or the server was restarted: once more
                return self._ask(statement, arguments)

    def one(self, statement: str, arguments: Sequence[Any] = ()) -> Any:
        return self.ask(statement, arguments)[0][0]

    def _ask(self, statement: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            connection = psycopg2.connect(
                **parameters(self._url),
                application_name="qanat",
                connect_timeout=10,
                options=self._settings,
            )
            connection.autocommit = True
            self._connection = connection
        with self._connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return [] if cursor.description is None else list(cursor.fetchall())

    def ended(self) -> bool:
        """Whether the server has ended this session, as it does first of all when it is shut down.

        It then waits for whoever replicates to confirm everything, which a reader with updates on their way
        cannot.
        """
        return self._connection is not None and bool(select([self._connection], [], [], 0)[0])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Stream:
    """A replication stream that has been started."""

    def __init__(
        self,
        url: LogUrl,
        slot: str,
        start: int,
        confirmed: int,
        options: dict[str, str],
        *,
        as_stored: bool = False,
    ) -> None:
        """`as_stored`: texts come in the database's own encoding, whatever their bytes are."""
        self._connection = psycopg2.connect(
            **parameters(url),
            connection_factory=LogicalReplicationConnection,
            application_name="qanat",
            connect_timeout=10,
            options=_settings(client_encoding="SQL_ASCII") if as_stored else _settings(),
        )
        self.last_start = 0
        """Where the last message was found in the WAL."""
        self._confirmed = confirmed  # a slot must not be told to go back
        try:
            self._cursor = self._connection.cursor()
            self._cursor.start_replication(
                slot_name=slot, start_lsn=start, options=options, status_interval=5
            )
        except BaseException:
            self._connection.close()
            raise
        self._read: Callable[[], Any] = self._cursor.read_message

    def receive(self, limit: int, wait_s: float) -> list[bytes]:
        """Messages that are there; waits for the first of them."""
        payloads: list[bytes] = []
        taken = 0
        until = 0.0
        while len(payloads) < limit and taken < READ_BYTES:
            found = list(islice(iter(self._read, None), min(_STEP, limit - len(payloads))))
            if not found:
                if len(payloads) >= BUSY:
                    # More is on its way: a few larger batches cost less than many small ones.
                    until = until or time.monotonic() + GATHER_S
                    wait_s = until - time.monotonic()
                elif payloads:
                    break
                if wait_s <= 0 or not select([self._cursor], [], [], wait_s)[0]:
                    break
                wait_s = 0
                continue
            part = list(map(attrgetter("payload"), found))
            payloads += part
            taken += sum(map(len, part))
            self.last_start = found[-1].data_start
        return payloads

    @property
    def sent_upto(self) -> int:
        """Once all messages were received: everything that was committed before this LSN has been sent."""
        return int(self._cursor.wal_end)

    def confirm(self, lsn: int) -> int:
        """Lets the slot go on to this LSN, as far as is safe; returns how far it was let.

        The driver moves the slot on by itself when the server says how far it is and the last message was
        confirmed. A slot would then be found beyond what its readers know of; so the last message never is.
        """
        allowed = min(lsn, self.last_start - 1)
        if allowed > self._confirmed:
            self._cursor.send_feedback(flush_lsn=allowed, force=True)
            self._confirmed = allowed
        return self._confirmed

    def ping(self) -> None:
        """Asks the server to say how far it is."""
        self._cursor.send_feedback(reply=True)

    def close(self) -> None:
        self._connection.close()
