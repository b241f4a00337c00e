"""What an archive raises.

```
LocalError
└── ArchiveError
    ├── NoArchive          there is no archive of that stream there
    ├── NotArchived        the archive does not have the sequence numbers that were asked for
    ├── ArchiveDamaged     a file that the manifest names is missing, cut short or changed; or the manifest
    itself is
    ├── ArchiveGap         the stream no longer has events that were not archived yet
    ├── StreamChanged      the stream at the server is not the one that was archived
    │   └── StreamBehind       it ends before what was archived
    ├── TaskFailed         a task of Spark failed, or Spark itself
    │   └── NoRoom             there was no space left for what it wrote
    ├── Fenced             another writer has taken this one's place
    └── Superseded         files that were to be replaced have been replaced by somebody else
```
"""

from qanat.events.errors import LocalError


class ArchiveError(LocalError):
    """Base of what goes wrong with an archive."""

    exit_code = 1


class NoArchive(ArchiveError):
    """Nothing is archived there."""

    exit_code = 2


class NotArchived(ArchiveError):
    """What was asked for is not in the archive, though the archive is whole."""

    exit_code = 2


class ArchiveDamaged(ArchiveError):
    """The archive is not what it was when it was written. Nothing is read past it."""


class ArchiveGap(ArchiveError):
    """Events are gone at the server that were not archived: first..last."""

    def __init__(self, stream: str, first: int, last: int) -> None:
        super().__init__(
            f"stream {stream!r} no longer keeps events {first} to {last} ({last - first + 1} of them), which"
            " were not archived: accept the loss with --accept-losses, and the archive says so for ever, or"
            " restore the stream"
        )
        self.stream, self.first, self.last = stream, first, last


class StreamChanged(ArchiveError):
    """The server's stream and the archived one have the same name and are not the same."""


class StreamBehind(StreamChanged):
    """The server's stream ends before what was archived: it is starting, or has lost what it had."""


class TaskFailed(ArchiveError):
    """Spark could not write what was to be archived. Nothing was committed."""

    exit_code = 3


class NoRoom(TaskFailed):
    """A disk is full. Nothing was committed, and what was written in vain is removed."""


class Fenced(ArchiveError):
    """A later writer of the same kind has begun. Nothing was committed, and nothing can be."""


class Superseded(ArchiveError):
    """The files to be replaced are not all in the archive's newest version. Nothing was committed: read it
    again."""
