"""What publishers on this machine lay down in a stream's folder: who may, under which names, and that nothing
of it is left behind."""

import os
import secrets

from qanat.events.errors import LocalError
from qanat.log import StreamLog
from qanat.log.staged import is_staged
from qanat.runtime.connection import Connection
from qanat.wire.streams import LogFolder, Open, Staging


class NotStaged(LocalError):
    """A publish names a file that its publisher was not asked to lay down."""


def log_folder(path: str) -> LogFolder | None:
    try:
        found = os.stat(path)
    except OSError:  # of a stream in memory there is none
        return None
    return LogFolder(path, found.st_dev, found.st_ino)


def staged_for(name: str) -> int:
    """The stream for which a file was laid down, by the file's name."""
    number = name.partition("-")[0]
    try:
        return int(number, 16)
    except ValueError:
        raise NotStaged(f"{name!r} is no name of a staged file") from None


class Stagings:
    """The publishers of one stream that may lay files down."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._beginnings: dict[Connection, str] = {}

    def offer(self, connection: Connection, message: Open) -> Staging | None:
        """Where this publisher may lay files down; None if it does not want to, is on another machine, or is
        another user's: then a file of its would not be ours to number."""
        ours = connection.is_local and connection.peer_user == os.geteuid()
        folder = log_folder(self._log.folder) if message.files and ours else None
        if folder is None:
            return None
        beginning = self._beginnings.get(connection)
        if beginning is None:
            # One that had not noticed yet that its connection was over may have laid a file down since.
            self._log.discard_but(self._beginnings.values())
            beginning = f"{self._log.stream:x}-{secrets.token_hex(6)}-"
            self._beginnings[connection] = beginning
        return Staging(folder, beginning)

    def check(self, connection: Connection, name: str) -> None:
        beginning = self._beginnings.get(connection)
        if beginning is None or not name.startswith(beginning) or not is_staged(name):
            raise NotStaged(f"{name!r} is no file that this publisher was asked to lay down")

    def forget(self, connection: Connection) -> None:
        """Removes what the publisher did not hand over."""
        beginning = self._beginnings.pop(connection, None)
        if beginning is not None:
            self._log.discard(beginning)
