"""Files on HDFS, through the Hadoop client that PySpark brings along, in a Java process of this reader's own.

There is no Hadoop client for Python without Java or a native library that no package carries. The child
speaks a small protocol over its pipes (`HdfsFiles.java`), starts at the first request and ends with the
reader.
"""

import importlib.util
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import IO

from qanat.capture.errors import LogUnreachable, NotSetUp
from qanat.capture.files.filesystem import Found
from qanat.runtime.java import find_java

_SOURCE = Path(__file__).with_name("HdfsFiles.java")
_ANSWER_S = 120.0
"""Starting Java, and the client's own retries, come within."""
_HEAD = Struct(">BI")
_LENGTH = Struct(">H")
_TIMES = Struct(">qq")
_LONGEST_BYTES = 1 << 30
_STDERR_BYTES = 2000


class HdfsFiles:
    """The file system of a NameNode, `hdfs://host:8020`."""

    poll_s = 0.1

    def __init__(self, address: str, user: str = "") -> None:
        self._address = address
        self._user = user
        self._child: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None

    def find(self, pattern: str) -> list[Found]:
        answer = self._ask("F", pattern) or b""
        found, at = [], 0
        try:
            while at < len(answer):
                path, at = _text(answer, at)
                identity, at = _text(answer, at)
                length, changed_us = _TIMES.unpack_from(answer, at)
                at += _TIMES.size
                found.append(Found(path, identity, length, changed_us))
        except (StructError, UnicodeDecodeError) as error:
            raise LogUnreachable(
                f"the Hadoop client of {self._address} gave a broken list of files"
            ) from error
        return found

    def read(self, path: str, offset: int, count: int, identity: str = "") -> bytes | None:
        return self._ask("R", path, offset, identity, count.to_bytes(4, "big"))

    def create(self, path: str, data: bytes) -> bool:
        try:
            return self._ask("C", path, body=data) == b"\x01"
        except LogUnreachable as error:
            if "AccessControlException" not in str(error):
                raise
            raise NotSetUp(
                f"{path} cannot be written on {self._address}, and without it files have no numbers that"
                " last: let this user write there, or name a folder of this machine with the option"
                " register="
            ) from error

    def remove(self, path: str) -> None:
        self._ask("D", path)

    def names(self, folder: str) -> list[str]:
        answer = self._ask("N", folder) or b""
        names, at = [], 0
        while at < len(answer):
            name, at = _text(answer, at)
            names.append(name)
        return names

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                child.wait(2)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    # --- the child --------------------------------------------------------------------------------------

    def _ask(
        self, what: str, path: str, offset: int = 0, identity: str = "", body: bytes = b""
    ) -> bytes | None:
        """The answer's bytes; None if there is no such file."""
        request = b"".join(
            [
                what.encode(),
                _utf(path),
                offset.to_bytes(8, "big"),
                _utf(identity),
                len(body).to_bytes(4, "big"),
                body,
            ]
        )
        child = self._started()
        assert child.stdin is not None
        try:
            child.stdin.write(request)
            child.stdin.flush()
            status, length = _HEAD.unpack(self._take(_HEAD.size))
            answer = self._take(length)
        except (OSError, StructError) as error:
            said = self._said()
            self.close()
            raise LogUnreachable(
                f"the Hadoop client of {self._address} broke off: {said or error}"
            ) from error
        if status > 1:
            raise LogUnreachable(f"{self._address}{path}: {answer.decode(errors='replace')[:500]}")
        return None if status else answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
            self._child = subprocess.Popen(
                [*java_command(), str(_SOURCE), _SOURCE.stem, self._address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                env=os.environ | ({"HADOOP_USER_NAME": self._user} if self._user else {}),
            )
        return self._child

    def _take(self, count: int) -> bytes:
        if count > _LONGEST_BYTES:
            raise OSError(f"an answer of {count} bytes")
        assert self._child is not None and self._child.stdout is not None
        pipe = self._child.stdout
        deadline = time.monotonic() + _ANSWER_S
        parts = []
        while count:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OSError(f"no answer in {_ANSWER_S:g} s")
            part = os.read(pipe.fileno(), min(count, 1 << 20))
            if not part:
                raise OSError("it ended")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _said(self) -> str:
        """The end of what the child complained of."""
        if self._stderr is None:
            return ""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - _STDERR_BYTES))
        return self._stderr.read().decode(errors="replace").strip()


def java_command() -> list[str]:
    """How a program in Java's own language is run with Spark's jars: compiled by the compiler among them."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NotSetUp(
            "files on HDFS are read by the Hadoop client that PySpark brings along: pip install pyspark"
        )
    path = [os.environ["HADOOP_CONF_DIR"]] if os.environ.get("HADOOP_CONF_DIR") else []
    path.append(str(_jars(Path(spec.origin)) / "*"))
    java = str(find_java().binary)
    quiet = ["-Xmx512m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *quiet, "-cp", os.pathsep.join(path), "org.codehaus.janino.SimpleCompiler"]


def _jars(package: Path) -> Path:
    """Beside the package; in a Python process of Spark's that is an archive in a folder of Spark's own
    (`python/lib`), further up from which the jars are."""
    homes = [*package.parents, *(Path(home) for home in (os.environ.get("SPARK_HOME"),) if home)]
    for home in homes:
        if (home / "jars").is_dir():
            return home / "jars"
    raise NotSetUp(
        f"files on HDFS are read by the Hadoop client among Spark's jars, and there are none near {package};"
        " set SPARK_HOME"
    )


def _utf(text: str) -> bytes:
    """As Java's `readUTF` wants it, for text without NUL and without what is beyond 16 bits."""
    plain = text.encode()
    if len(plain) > 0xFFFF:
        raise LogUnreachable(f"{text[:60]!r}… is too long for the name of a file")
    return _LENGTH.pack(len(plain)) + plain


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    return data[at : at + length].decode(), at + length
