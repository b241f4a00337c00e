"""An archive's folder on HDFS (or whatever else Hadoop knows), through the Java of a Spark session: for the
driver alone."""

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from pyspark.sql import SparkSession

from qanat.events.errors import LocalError
from qanat.pipeline.archive.storage import Entry, crc32c_of

_BUFFER = 1024 * 1024


class HadoopStorage:
    """Names are changed by `FileContext`, whose rename refuses a name that is taken; HDFS does that
    atomically."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        self._spark = cast(Any, spark)
        self._jvm: Any = self._spark._jvm
        self._conf: Any = self._spark._jsc.hadoopConfiguration()
        with _translated(self.root):
            path = self._path("")
            self._files: Any = path.getFileSystem(self._conf)
            self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                path.toUri(), self._conf
            )

    def below(self, folder: str) -> "HadoopStorage":
        return HadoopStorage(self._spark, self.url(folder))

    def url(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path))

    def entries(self, folder: str) -> list[Entry]:
        try:
            with _translated(self.url(folder)):
                found = self._files.listStatus(self._path(folder))
                return sorted(
                    Entry(
                        about.getPath().getName(),
                        about.getLen(),
                        about.isDirectory(),
                        about.getModificationTime() * 1000,
                    )
                    for about in found
                )
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int | None:
        try:
            with _translated(self.url(path)):
                return int(self._files.getFileStatus(self._path(path)).getLen())
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()

    def put(self, path: str, data: bytes) -> bool:
        folder, _, name = path.rpartition("/")
        fresh = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp" if folder else f".{name}.{uuid.uuid4().hex}.tmp"
        with _translated(self.url(path)):
            out = self._files.create(self._path(fresh), True)
            try:
                out.write(data)
                out.hsync()
            finally:
                out.close()
        try:
            self._rename(fresh, path)
        except FileExistsError:
            self.remove(fresh)
            return False
        return True

    def move(self, old: str, new: str) -> None:
        with _translated(self.url(new)):
            self._files.mkdirs(self._path(new).getParent())
        self._rename(old, new)

    def _rename(self, old: str, new: str) -> None:
        options = self._spark._sc._gateway.new_array(
            getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename"), 0
        )
        with _translated(self.url(new)):
            self._context.rename(self._path(old), self._path(new), options)

    def remove(self, path: str) -> None:
        with _translated(self.url(path)):
            self._files.delete(self._path(path), True)

    def open(self, path: str) -> IO[bytes]:
        with _translated(self.url(path)):
            length = int(self._files.getFileStatus(self._path(path)).getLen())
            stream = self._files.open(self._path(path))
        raw = _JavaFile(stream, self._jvm.org.apache.commons.io.IOUtils, length)
        return cast(IO[bytes], io.BufferedReader(raw, _BUFFER))

    def checksum(self, path: str) -> str:
        """HDFS's own if it has one, which costs no reading."""
        with _translated(self.url(path)):
            own = self._files.getFileChecksum(self._path(path))
        if own is not None:
            return str(own.toString())
        with self.open(path) as file:
            return crc32c_of(file)


class _JavaFile(io.RawIOBase):
    """A Java input stream that can seek, as Python's raw file. Bytes cross the gateway a piece at a time."""

    def __init__(self, stream: Any, tools: Any, length: int) -> None:
        super().__init__()
        self._stream, self._tools, self._length, self._at = stream, tools, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._length - self._at)
        if count <= 0:
            return 0
        self._stream.seek(self._at)
        data = bytes(self._tools.toByteArray(self._stream, count))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Java's exceptions as those that the storage promises."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        name = java.getClass().getSimpleName()
        if name in ("FileNotFoundException", "NoSuchFileException"):
            raise FileNotFoundError(where) from error
        if name == "FileAlreadyExistsException":
            raise FileExistsError(where) from error
        raise LocalError(f"{where}: {name}: {str(java.getMessage()).partition(chr(10))[0]}") from error
