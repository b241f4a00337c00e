"""Whether a query would see what the log already has.

A transaction is in the binlog, and on its way to readers, before the server commits it in the engine: for a
moment, or for as long as a semi-synchronous replica is waited for (`AFTER_SYNC`), a query shows what was
before. Who forgets a cached row in that moment may have it filled again with the old one, and never hears of
it again.
"""

from typing import NamedTuple

from qanat.capture.mariadb.connection import Session
from qanat.events.errors import RemoteError


class Reached(NamedTuple):
    """A place in the files of one server, in their order."""

    number: int
    """Of the file, the digits behind its name's last dot."""
    offset: int

    @classmethod
    def of(cls, file: str, offset: int) -> "Reached":
        return cls(int(file.rpartition(".")[2]), offset)


def seen(session: Session) -> Reached:
    """Every transaction that ends here or before is seen by every query that begins from now on.

    A consistent snapshot is taken under the lock under which transactions are committed in the engine, and
    tells the place of the log that belongs to it.
    """
    session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    status = dict(session.query("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    session.query("COMMIT")
    try:
        return Reached.of(str(status["Binlog_snapshot_file"]), int(status["Binlog_snapshot_position"]))
    except (KeyError, ValueError):
        raise RemoteError(f"{session.server} does not tell the place of a snapshot in its log") from None
