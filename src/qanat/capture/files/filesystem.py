"""What a reader needs of a file system, and this machine's."""

import glob
import os
import stat
from pathlib import Path
from typing import NamedTuple, Protocol

from qanat.capture.errors import LogUnreachable, NotSetUp
from qanat.events.durable import make, make_folder


class Found(NamedTuple):
    """A file as it is now."""

    path: str
    identity: str
    """The same as long as it is the same file, under whatever name; of a file that is gone it may be given to
    another."""
    length: int
    """As much as a reader can see: of a file that is being written, what the writer has flushed."""
    changed_us: int
    """When it was last changed, by the clock of the file system, in microseconds since the epoch."""


class FileSystem(Protocol):
    """Blocking, for one thread. Raises `LogUnreachable` when it does not answer."""

    poll_s: float
    """How often it is worth asking whether a file has grown."""

    def find(self, pattern: str) -> list[Found]:
        """The files that match, without those that begin with a dot or an underscore; all files of a folder
        if the pattern is one."""

    def read(self, path: str, offset: int, count: int, identity: str = "") -> bytes | None:
        """At most so many bytes, fewer only at the end; None if there is no such file (any more), or another
        one has its name."""

    def create(self, path: str, data: bytes) -> bool:
        """A new file, at once with all its bytes, in a folder that is made if need be; False if there is one
        of that name."""

    def remove(self, path: str) -> None:
        """Does nothing if there is no such file."""

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder; none if there is no such folder."""

    def close(self) -> None: ...


def is_hidden(path: str) -> bool:
    """Hadoop's rule: files that are being prepared, markers and our own register are no records."""
    return path.rpartition("/")[2].startswith((".", "_"))


class LocalFiles:
    """The file system of this machine."""

    poll_s = 0.01

    def find(self, pattern: str) -> list[Found]:
        paths = glob.glob(os.path.join(glob.escape(pattern), "*") if os.path.isdir(pattern) else pattern)
        found = []
        for path in paths:
            if is_hidden(path):
                continue
            try:
                status = os.stat(path)
            except FileNotFoundError:  # removed since
                continue
            if stat.S_ISREG(status.st_mode):
                found.append(_found(path, status))
        return found

    def read(self, path: str, offset: int, count: int, identity: str = "") -> bytes | None:
        try:
            with open(path, "rb", buffering=0) as file:
                if identity and _found(path, os.fstat(file.fileno())).identity != identity:
                    return None
                return os.pread(file.fileno(), count, offset)
        except (FileNotFoundError, IsADirectoryError):
            return None
        except OSError as error:
            raise LogUnreachable(f"{path} cannot be read: {error.strerror}") from error

    def create(self, path: str, data: bytes) -> bool:
        try:
            make_folder(Path(path).parent)
            return make(Path(path), data)
        except OSError as error:
            raise NotSetUp(
                f"{path} cannot be written ({error.strerror}), and without it files have no numbers that"
                " last: let this user write there, or name another folder with the option register="
            ) from error

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LogUnreachable(f"{folder} cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Nothing is kept open."""


def _found(path: str, status: os.stat_result) -> Found:
    return Found(path, f"{status.st_dev}:{status.st_ino}", status.st_size, status.st_mtime_ns // 1000)
