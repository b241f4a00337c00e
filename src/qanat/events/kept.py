"""Small files that are not given up in silence: kept twice, each with its number and its checksum in a first
line.

```
# number=3 crc32c=0badcafe bytes=12
{"eu": 7500}
```

The file is replaced first, and then its twin. So a crash leaves the twin one number behind at most, and all
else is damage: of a file that is not what was written, that is gone, or that is an older copy, the other one
tells, and is believed. If neither is whole the file is refused. Reading changes nothing, for others may read
while one writes; `mend` and the next `write` make both good again.

A file that has no such line, and no twin, is taken as it is: somebody wrote it by hand, or an earlier version
did.
"""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from qanat.events.checksum import crc32c
from qanat.events.durable import remove, replace
from qanat.events.errors import LocalError

log = logging.getLogger("qanat.files")

_HEAD = re.compile(rb"# number=(\d{1,18}) crc32c=([0-9a-f]{8}) bytes=(\d{1,12})\n")
_LIKE_A_HEAD = b"# number="


class Damaged(LocalError):
    """A file and its twin are both not what was written."""

    exit_code = 1


class _Copy(NamedTuple):
    """One of the two files."""

    path: Path
    there: bool = False
    whole: bool = False
    number: int = 0
    data: bytes = b""

    @property
    def plain(self) -> bool:
        return self.there and not self.whole and not self.data.startswith(_LIKE_A_HEAD[:3])


def sealed(data: bytes, number: int = 1) -> bytes:
    """With its first line."""
    sum_ = crc32c(data, crc32c(b"%d" % number))
    return b"# number=%d crc32c=%08x bytes=%d\n" % (number, sum_, len(data)) + data


def unsealed(content: bytes) -> tuple[int, bytes] | None:
    """Number and data; None if they are not what was sealed."""
    head = _HEAD.match(content)
    if head is None:
        return None
    number, data = int(head[1]), content[head.end() :]
    if len(data) != int(head[3]) or b"%08x" % crc32c(data, crc32c(b"%d" % number)) != head[2]:
        return None
    return number, data


def twin_of(path: Path) -> Path:
    """Where the second file lies, if nobody says otherwise."""
    return path.with_name(f".{path.name}.twin")


class Kept:
    """One file and its twin. `say` is told, once, what was wrong with one of them."""

    def __init__(
        self,
        path: Path,
        twin: Path | None = None,
        *,
        mode: int = 0o644,
        shared: bool = False,
        say: Callable[[str], object] = log.warning,
    ) -> None:
        """`shared`: several may write at once, and the last one counts."""
        self.path, self.twin = path, twin or twin_of(path)
        self._mode, self._shared, self._say = mode, shared, say
        self._said: set[str] = set()

    def exists(self) -> bool:
        return self.path.exists() or self.twin.exists()

    def read(self) -> bytes | None:
        """What was written last; None if there is neither of the two. Raises `Damaged`."""
        best = self._best()
        return None if best is None else best.data

    def readable(self) -> Path | None:
        """The one of the two files that has what was written last."""
        best = self._best()
        return None if best is None else best.path

    def write(self, data: bytes) -> None:
        """On disk, twice, when it returns."""
        number = max(_look(self.path).number, _look(self.twin).number) + 1
        self._put(sealed(data, number), self.path, self.twin)

    def mend(self) -> bytes | None:
        """`read`, for who alone may write: the two are the same afterwards, if there is room."""
        best = self._best()
        if best is None:
            return None
        for each in (_look(self.path), _look(self.twin)):
            if best.whole and (not each.whole or each.number < best.number):
                try:
                    self._put(sealed(best.data, best.number), each.path)
                except OSError as error:  # the other one is as good
                    self._say(f"{each.path} could not be made again: {error.strerror}")
        return best.data

    def remove(self) -> None:
        """The twin first: what is left after a crash is the file, and not one that comes back."""
        remove(self.twin)
        remove(self.path)

    def _put(self, content: bytes, *paths: Path) -> None:
        for path in paths:
            replace(path, content, mode=self._mode, shared=self._shared)

    def _best(self) -> _Copy | None:
        first, second = _look(self.path), _look(self.twin)
        if second.number > first.number:  # perhaps it was written between the two looks
            first = _look(self.path)
        if not first.there and not second.there:
            return None
        if first.plain and not second.there:
            return first
        if not first.whole and not second.whole:
            raise Damaged(
                f"{self.path} is damaged, and so is {self.twin}: restore one of them from a copy, or remove"
                " both and with them what they said"
            )
        if not first.whole or first.number < second.number:
            self._tell(first, second)
            return second
        if (not second.whole and (second.there or first.number > 1)) or (
            second.whole and second.number < first.number - 1
        ):
            self._tell(second, first)
        return first

    def _tell(self, bad: _Copy, good: _Copy) -> None:
        what = "was gone" if not bad.there else "was an older copy" if bad.whole else "was damaged"
        sentence = f"{bad.path} {what}; what counts is {good.path}"
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)


def _look(path: Path) -> _Copy:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return _Copy(path)
    found = unsealed(content)
    if found is None:
        return _Copy(path, there=True, data=content)
    return _Copy(path, there=True, whole=True, number=found[0], data=found[1])
