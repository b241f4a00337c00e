"""What a log refuses, and how it fails.

```
LocalError
├── DiskFull       no space (or quota, or file size limit): nothing of the write remains; try again later
│   └── OutOfDescriptors  no file can be opened now: nothing of the write remains either
├── DiskFailed     the disk reported an error: what was not yet synced may or may not be there
├── CorruptLog     bytes that were once synced are no longer what was written
├── PositionGap    a source whose numbering is dense left something out
├── PositionOrder  positions of one source that do not rise within a batch
├── PositionLeap   a source that would go further at once than any log does
├── TimeAhead      an event dated further ahead than clocks differ
├── SourceLimit    more sources than the log is configured to remember
├── SequenceGap    a numbered batch that does not continue the stream
├── NotForThisLog  a batch that this log cannot take as it is
└── LogClosed      the log was closed, or stopped itself after a failed sync
```
"""

from qanat.events.errors import LocalError


class DiskFull(LocalError):
    """There is no room. Definite: what was partly written has been cut off again, or is never looked at."""

    exit_code = 3


class OutOfDescriptors(DiskFull):
    """The process, or the system, has as many files open as it may. Definite, as a full disk is, and over by
    itself."""


class DiskFailed(LocalError):
    """The operating system reported an input or output error."""

    definite = False
    exit_code = 3


class CorruptLog(LocalError):
    """Bytes that the log had on disk are damaged or gone; `file` and `offset` say where."""

    def __init__(self, file: str, offset: int, reason: str, advice: str = "") -> None:
        advice = advice or (
            "restore the file from a replica or a backup, or open the log with repair=True, "
            "which keeps what comes before and reports what is lost"
        )
        super().__init__(f"{file} is damaged at byte {offset}: {reason}; {advice}")
        self.file, self.offset, self.reason = file, offset, reason


class PositionGap(LocalError):
    """A source with dense numbering left out positions; taking the batch would hide the loss."""

    def __init__(self, source: str, expected: int, got: int) -> None:
        super().__init__(
            f"source {source!r} must continue at position {expected}, not at {got}: "
            f"publish {expected}..{got - 1} first"
        )
        self.source, self.expected, self.got = source, expected, got


class PositionOrder(LocalError):
    """Positions of one source must rise from row to row."""


class PositionLeap(LocalError):
    """A position so far beyond what its source has reached that every later event of it would pass for a
    repetition."""


class TimeAhead(LocalError):
    """An event's time lies further ahead of the server's clock than clocks differ, or before all time."""


class SourceLimit(LocalError):
    """The log remembers as many sources as it may; a new one would make it forget another."""


class SequenceGap(LocalError):
    """A numbered batch that starts past the next sequence number, or has rows left out."""


class NotForThisLog(LocalError):
    """A batch of another stream, or of a shape that the stream's owner does not number."""


class LogClosed(LocalError):
    """The log takes nothing more; the message says why."""
