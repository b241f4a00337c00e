"""The folder that holds an archive: of this machine, or of a file system that Spark reaches through Hadoop.

A commit is `put`: a file that appears whole under a name that was free, or not at all. On this machine that
is a hard link, on HDFS a rename that refuses an existing name. An object store has neither; an archive cannot
be kept on one directly.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from qanat.events import durable
from qanat.events.checksum import crc32c
from qanat.events.durable import make, make_folder, sync_data
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECE = 4 * 1024 * 1024


class Entry(NamedTuple):
    """A name in a folder."""

    name: str
    size: int
    is_folder: bool
    changed_us: int


class Storage(Protocol):
    """What an archive needs of a file system. Paths are relative to its root, with `/`."""

    root: str

    def below(self, folder: str) -> "Storage":
        """The storage of a folder in this one."""

    def url(self, path: str) -> str:
        """What Spark opens the path by."""

    def entries(self, folder: str) -> list[Entry]:
        """What is in a folder, sorted by name; nothing if there is no such folder."""

    def size(self, path: str) -> int | None:
        """Bytes of a file; None if there is none."""

    def read(self, path: str) -> bytes:
        """All of a small file; raises `FileNotFoundError`."""

    def put(self, path: str, data: bytes) -> bool:
        """Makes a file with these bytes, durably, if there is none of that name; says whether it did."""

    def move(self, old: str, new: str) -> None:
        """Names a file anew, durably with its bytes; the folder of the new name is made if need be."""

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all in it; nothing happens if it is not there."""

    def open(self, path: str) -> IO[bytes]:
        """A file to read from anywhere; raises `FileNotFoundError`."""

    def checksum(self, path: str) -> str:
        """Of a file's bytes, with the name of how it was computed before it."""


_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")


def storage_of(path: str, spark: "SparkSession | None" = None) -> Storage:
    """The storage at a path (`/data/archive`, `file:///data/archive`, `hdfs://host:port/archive`).

    What is not a folder of this machine is reached through Spark, whose session is then needed.
    """
    if not needs_spark(path):
        _, colon, rest = path.partition("://")
        return LocalStorage("/" + rest.lstrip("/") if colon else path.removeprefix("file:"))
    if spark is None:
        raise LocalError(f"{path} is reached through Spark alone; here is no session")
    from qanat.pipeline.archive.hadoop import HadoopStorage

    return HadoopStorage(spark, path)


def needs_spark(path: str) -> bool:
    """Whether an archive at this path is reached through Spark; raises `LocalError` if none can be there at
    all."""
    scheme, colon, _ = path.partition("://")
    if not colon or scheme == "file":
        return False
    if scheme in _OBJECT_STORES:
        raise LocalError(
            f"{path}: an object store cannot rename without replacing, which commits need; archive to a"
            " folder or to HDFS"
        )
    return True


class LocalStorage:
    """A folder of this machine (or one that all machines of a cluster have mounted at the same place)."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def below(self, folder: str) -> "LocalStorage":
        return LocalStorage(self._at(folder))

    def url(self, path: str) -> str:
        return "file://" + self._at(path)

    def make_folder(self, path: str) -> str:
        """Makes a folder, for whoever writes to it by its name on this machine, which is returned."""
        make_folder(Path(self._at(path)))
        return self._at(path)

    def entries(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(self._at(folder)) as found:
                return sorted(_entries(found))
        except FileNotFoundError:
            return []
        except NotADirectoryError as error:
            raise LocalError(f"{self._at(folder)} is a file, not a folder of an archive") from error

    def size(self, path: str) -> int | None:
        try:
            return os.stat(self._at(path)).st_size
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        with open(self._at(path), "rb") as file:
            return file.read()

    def put(self, path: str, data: bytes) -> bool:
        target = Path(self._at(path))
        make_folder(target.parent)
        return make(target, data)

    def move(self, old: str, new: str) -> None:
        source, target = Path(self._at(old)), Path(self._at(new))
        with open(source, "rb") as file:
            sync_data(file.fileno())
        make_folder(target.parent)
        durable.move(source, target)

    def remove(self, path: str) -> None:
        target = self._at(path)
        if os.path.isdir(target):
            shutil.rmtree(target, ignore_errors=True)
            return
        with suppress(FileNotFoundError):
            os.unlink(target)

    def open(self, path: str) -> IO[bytes]:
        return open(self._at(path), "rb")

    def checksum(self, path: str) -> str:
        with self.open(path) as file:
            return crc32c_of(file)


def crc32c_of(file: IO[bytes]) -> str:
    """The checksum of what is left of a file, a piece at a time."""
    value = 0
    while piece := file.read(_PIECE):
        value = crc32c(piece, value)
    return f"crc32c:{value:08x}"


def _entries(found: Iterator["os.DirEntry[str]"]) -> Iterator[Entry]:
    for entry in found:
        with suppress(FileNotFoundError):  # removed while we looked
            about = entry.stat()
            yield Entry(entry.name, about.st_size, entry.is_dir(), about.st_mtime_ns // 1000)
