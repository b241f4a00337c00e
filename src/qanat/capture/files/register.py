"""Where numbers of files are remembered: a small folder beside the files, in which each state is a file of
its own.

States are numbered, and one is written only if nobody has written that number: of two readers that find a new
file at once one writes, the other reads what was written. Whoever finds a state has it whole. Older ones are
removed. Each is written twice, under two names and with a
checksum: should one of the two be damaged or gone, the other counts.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from qanat.capture.errors import LogUnreachable, MalformedLog
from qanat.capture.files.filesystem import FileSystem, Found
from qanat.capture.files.numbering import HEAD_BYTES, Numbers, renumber, with_marks
from qanat.events.kept import log, sealed, unsealed

_KEPT = 2
_TRIES = 100
_LIMIT_BYTES = 1 << 28
_FIRST, _TWIN = ".json", ".twin"


def default_folder(pattern: str) -> str:
    """Beside the files: in the deepest folder that is the same for all of them."""
    fixed, wild = pattern.rstrip("/"), ""
    while any(character in fixed for character in "*?[") or not wild:
        fixed, _, last = fixed.rpartition("/")
        wild = f"{last}/{wild}"
    return f"{fixed}/.qanat-files-{hashlib.sha256(wild.encode()).hexdigest()[:12]}"


class Register:
    """The numbers, as of the last look."""

    def __init__(
        self,
        files: FileSystem,
        pattern: str,
        folder: str,
        store: FileSystem,
        order: Callable[[Found], tuple[object, ...]],
    ) -> None:
        self._files = files
        self._pattern = pattern
        self._folder = folder
        self._store = store
        self._order = order
        self._version = 0
        self.numbers = Numbers()
        self.found: dict[str, Found] = {}
        """By identity."""

    def look(self, read_upto: Mapping[int, int]) -> None:
        """What is there now; new files get numbers, which are written down before anybody hears of them."""
        found = self._files.find(self._pattern)
        self._change(found, lambda numbers: renumber(numbers, found, self._head, read_upto, self._order))
        self.found = {file.identity: file for file in found}

    def identity(self) -> str:
        """What tells this register from all others, and its copies do not change."""
        if not self.numbers.identity:
            mark = secrets.token_hex(6)
            self._change([], lambda now: now if now.identity else msgspec.structs.replace(now, identity=mark))
        return self.numbers.identity

    def close_part(self, number: int, end: int, length: int) -> None:
        """This number stands for no more than its file has up to `end`, now that it has this length."""
        self._change(list(self.found.values()), lambda numbers: numbers.closed(number, end, length))

    def forget(self, number: int) -> None:
        """The file of this number was replaced by another."""
        self._change(list(self.found.values()), lambda numbers: numbers.without(number))

    def _change(self, found: Sequence[Found], change: Callable[[Numbers], Numbers]) -> None:
        for _ in range(_TRIES):
            self._load()
            numbers = change(self.numbers)
            if numbers is self.numbers or numbers == self.numbers:
                return
            numbers = with_marks(numbers, found, self._head)
            content = sealed(msgspec.json.encode(numbers), self._version + 1)
            if self._store.create(self._path(self._version + 1), content):
                self._version += 1
                self.numbers = numbers
                self._store.create(self._path(self._version, _TWIN), content)
                if self._version > _KEPT:
                    for ending in (_TWIN, _FIRST):
                        self._store.remove(self._path(self._version - _KEPT, ending))
                return
        raise LogUnreachable(f"{self._folder} is written by others all the time")

    def _load(self) -> None:
        for _ in range(_TRIES):
            versions = [int(name[:12]) for name in self._store.names(self._folder) if _is_version(name)]
            newest = max(versions, default=0)
            if newest <= self._version:
                return
            first, twin = (
                self._store.read(self._path(newest, ending), 0, _LIMIT_BYTES) for ending in (_FIRST, _TWIN)
            )
            if first is not None or twin is not None:
                self.numbers = self._decoded(newest, first, twin)
                self._version = newest
                return
            time.sleep(0.001)  # a newer state has taken its place
        raise LogUnreachable(f"{self._folder} is written by others all the time")

    def _decoded(self, version: int, first: bytes | None, twin: bytes | None) -> Numbers:
        """The state that one of the two files has; the other one is made good."""
        found = [None if content is None else unsealed(content) for content in (first, twin)]
        whole = [each[1] for each in found if each is not None and each[0] == version]
        if not whole and twin is None and first is not None and not first.startswith(b"#"):
            whole = [first]  # of an earlier version
        try:
            numbers = msgspec.json.decode(whole[0], type=Numbers)
        except (IndexError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedLog(
                f"{self._path(version)} is no register of files, nor is its twin ({error}); the numbers of"
                " the files stood in it: restore it from a copy"
            ) from error
        for ending, content, each in zip((_FIRST, _TWIN), (first, twin), found, strict=True):
            if each is None and found != [None, None]:
                path = self._path(version, ending)
                if content is not None or ending == _FIRST:
                    log.warning(
                        f"{path} was {'gone' if content is None else 'damaged'}; it was made again from its"
                        " twin"
                    )
                self._store.remove(path)
                self._store.create(path, sealed(whole[0], version))
        return numbers

    def _head(self, file: Found) -> bytes:
        return self._files.read(file.path, 0, HEAD_BYTES, file.identity) or b""

    def _path(self, version: int, ending: str = ".json") -> str:
        return f"{self._folder}/{version:012d}{ending}"


def _is_version(name: str) -> bool:
    return len(name) == 17 and name.endswith((_FIRST, _TWIN)) and name[:12].isdigit()
