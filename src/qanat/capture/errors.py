"""What can be wrong with a log, or with the way to it.

```
LocalError
├── BadLogUrl      text that names no log: an unknown kind, a missing part, an unknown option
├── NotSetUp       the datastore keeps no log that can be read as it is; the message has what to change
└── OtherLog       the log has other updates than it had at the positions that were read
RemoteError
├── MalformedLog   bytes that the format of the log does not allow
└── LogUnreachable the datastore did not answer, or broke off
```
"""

from qanat.events.errors import LocalError, RemoteError
from qanat.events.position import Position


class BadLogUrl(LocalError):
    """Text that names no log."""


class NotSetUp(LocalError):
    """The datastore must be set up otherwise before its log can be read; the message says how."""


class OtherLog(LocalError):
    """The log is of another history than the one that was read before; to go on at its positions would pass
    over updates."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what}; {advice}" if advice else what)
        self.what = what
        """Without what is to be done, which is another thing for each who reads it."""


class MalformedLog(RemoteError):
    """Bytes of a log that its format does not allow: a damaged file, or a kind of entry that is not known
    here.

    Where the reader knows the one record that it is (`position`, and its bytes as `original`) and where the
    next begins, whoever seeks to `resume` goes on without it.
    """

    def __init__(
        self,
        message: str,
        *,
        position: Position | None = None,
        resume: Position | None = None,
        original: bytes = b"",
    ) -> None:
        super().__init__(message)
        self.position, self.resume, self.original = position, resume, original


class LogUnreachable(RemoteError):
    """The datastore did not answer, or broke off; a later read may succeed."""
