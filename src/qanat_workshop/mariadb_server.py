"""A real mariadbd on a free port, with its data in a folder: what benchmarks measure and tests read from."""

from __future__ import annotations

import atexit
import getpass
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql  # type: ignore[import-untyped]

from qanat.bench.programs import free_port

ROW_LOG = {
    "log-bin": "bin",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "ON",
    "log-slave-updates": "ON",
}
"""What the reader asks of a server."""
SMALL = {
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "innodb-flush-log-at-trx-commit": "2",
    "performance-schema": "OFF",
    "key-buffer-size": "1M",
    "aria-pagecache-buffer-size": "1M",
    "skip-name-resolve": "1",
    "sync-binlog": "0",
}
DEADLINE_S = 60


class MariadbServer:
    def __init__(self, folder: Path, port: int, options: dict[str, str | None]) -> None:
        self.folder = folder
        self.port = port
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mariadb://root@127.0.0.1:{self.port}/"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, **changed: str | None) -> None:
        """With options as `log_bin="other"`; None leaves an option away. They hold for the next starts
        too."""
        self.options.update({name.replace("_", "-"): value for name, value in changed.items()})
        flags = [f"--{name}={value}" for name, value in self.options.items() if value is not None]
        # The socket's path may not be longer than about 100 bytes, which a test's folder often is.
        self._socket = tempfile.mktemp(prefix="maria", suffix=".sock", dir="/tmp")
        command = ["mariadbd", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={self.data}"]
        command += [f"--socket={self._socket}", f"--port={self.port}", "--bind-address=127.0.0.1"]
        command += [f"--pid-file={self.folder / 'pid'}", f"--log-error={self.folder / 'error.log'}", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.connect().close()
                return
            except pymysql.err.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "error.log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def stop(self) -> None:
        """In good order."""
        self._end(kill=False)

    def kill(self) -> None:
        """As a crash would."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        if self._process is None:
            return
        (self._process.kill if kill else self._process.terminate)()
        self._process.wait(DEADLINE_S)
        self._process = None
        Path(self._socket).unlink(missing_ok=True)

    def connect(self, **options: Any) -> Any:
        wanted: dict[str, Any] = {"user": "root", "autocommit": True, "charset": "utf8mb4", **options}
        return pymysql.connect(host="127.0.0.1", port=self.port, **wanted)

    def run(self, *statements: str, **options: Any) -> Sequence[tuple[Any, ...]]:
        """In one session, each its own transaction; the rows of the last."""
        with closing(self.connect(**options)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
            return rows


_template: Path | None = None


def _fresh(data: Path) -> None:
    """An empty database; made once in a run of tests and copied, since making it takes seconds."""
    global _template
    if _template is None:
        made = Path(tempfile.mkdtemp(prefix="mariadb-template-")) / "data"
        command = ["mariadb-install-db", "--no-defaults", f"--datadir={made}", f"--user={getpass.getuser()}"]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M"]
        subprocess.run(command, check=True, capture_output=True)
        atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
        _template = made
    shutil.copytree(_template, data)


@contextmanager
def mariadb_server(folder: Path, **options: str | None) -> Iterator[MariadbServer]:
    """`with mariadb_server(tmp_path, binlog_format="MIXED") as server:`; the options of a sound set-up
    otherwise."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    server = MariadbServer(folder, free_port(), {"server-id": "1", **ROW_LOG, **SMALL, **named})
    folder.mkdir(parents=True, exist_ok=True)
    _fresh(server.data)
    try:
        server.start()
        yield server
    finally:
        server.kill()
