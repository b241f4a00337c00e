"""A real PostgreSQL on a free port, with its data in a temporary folder; and standbys of it. For tests
too."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from qanat.bench.programs import free_port

BIN = Path("/usr/lib/postgresql/15/bin")
DEADLINE_S = 60
SMALL: dict[str, str] = {
    "wal_level": "logical",
    "shared_buffers": "16MB",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
    "max_connections": "30",
    "fsync": "off",
    "max_wal_size": "256MB",
    "autovacuum": "off",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "wal_receiver_status_interval": "1s",
}


def _user() -> str | None:
    """PostgreSQL refuses to run as root; Debian's package makes this user."""
    return "postgres" if os.geteuid() == 0 else None


def _run(*command: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in command], user=_user(), capture_output=True, text=True, cwd="/", check=False
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-1000:] + done.stderr[-1000:])


class PostgresServer:
    def __init__(self, folder: Path, port: int, options: dict[str, str]) -> None:
        self.folder = folder
        self.port = port
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, **changed: str) -> None:
        """With settings as `wal_level="replica"`; they hold for the next starts too."""
        self.options.update(changed)
        command = [str(BIN / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        command += [word for name, value in self.options.items() for word in ("-c", f"{name}={value}")]
        log = open(self.folder / "server.log", "ab")  # noqa: SIM115
        with log:
            self._process = subprocess.Popen(command, user=_user(), stdout=log, stderr=log, cwd="/")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg2.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "server.log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def stop(self) -> None:
        """In good order, without waiting for clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a crash would; its children notice and end."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(DEADLINE_S)
        self._process = None

    def connect(self, database: str = "postgres", user: str = "postgres") -> Any:
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user=user, dbname=database)
        connection.autocommit = True
        return connection

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """In one session, each its own transaction; the rows of the last, if it has any."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description is not None else []

    @contextmanager
    def standby(self, name: str = "standby") -> Iterator[PostgresServer]:
        """A physical standby, which follows this server until it is promoted."""
        folder = _folder(self.folder.parent / name)
        follower = PostgresServer(folder, free_port(), dict(self.options))
        _run(BIN / "pg_basebackup", "-D", follower.data, "-d", self.url, "-R", "-X", "stream", "-c", "fast")
        try:
            follower.start()
            yield follower
        finally:
            follower.kill()

    def promote(self) -> None:
        _run(BIN / "pg_ctl", "promote", "-D", self.data, "-w")


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    if (user := _user()) is not None:
        known = pwd.getpwnam(user)
        os.chown(path, known.pw_uid, known.pw_gid)
    return path


_template: Path | None = None


def _fresh(data: Path) -> None:
    """An empty cluster; made once in a run of tests and copied, since making it takes seconds."""
    global _template
    if _template is None:
        made = Path(tempfile.mkdtemp(prefix="postgres-template-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        _folder(made / "of")
        made.chmod(0o755)
        _run(
            BIN / "initdb",
            "-D",
            made / "of" / "data",
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        )
        _template = made / "of" / "data"
    _run("cp", "-a", _template, data)


@contextmanager
def postgres_server(**options: str) -> Iterator[PostgresServer]:
    """`with postgres_server(wal_level="replica") as server:`; a sound set-up otherwise.

    Not in a test's own folder: those are closed to other users, and the server is one.
    """
    outer = Path(tempfile.mkdtemp(prefix="postgres-"))
    outer.chmod(0o755)
    try:
        server = PostgresServer(_folder(outer / "primary"), free_port(), {**SMALL, **options})
        _fresh(server.data)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(outer, ignore_errors=True)
