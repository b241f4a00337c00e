"""Streams that were removed: their files go, and who still comes for them is told so.

A folder is first given another name, in one step that survives a power cut, and emptied then. Whoever finds
one of these names later goes on emptying it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qanat.events import durable
from qanat.events.batch import stream_id
from qanat.events.errors import LocalError

_ENDING = ".removed"
_REMEMBERED = 1_000
"""Removed streams of which it is known that they were there."""


class BeingRemoved(LocalError):
    """A stream of this name goes just now."""


class RemovedStreams:
    """Why a stream that somebody asks for is not there."""

    def __init__(self) -> None:
        self._why: dict[int, str] = {}
        self._going: set[str] = set()

    @contextmanager
    def going(self, name: str, number: int, why: str) -> Iterator[None]:
        """While its files are there under its name."""
        self._why.pop(number, None)
        self._why[number] = why
        while len(self._why) > _REMEMBERED:
            del self._why[next(iter(self._why))]
        self._going.add(name)
        try:
            yield
        finally:
            self._going.discard(name)

    def check_gone(self, name: str) -> None:
        if name in self._going:
            raise BeingRemoved(f"stream {name!r} is being removed; try again in a moment")
        self._why.pop(stream_id(name), None)

    def why(self, name: str) -> str:
        """Empty if none of this name was removed."""
        return self.why_number(stream_id(name))

    def why_number(self, number: int) -> str:
        return self._why.get(number, "")


def set_aside(folder: Path, apart: Iterable[Path]) -> None:
    """From here on the stream is gone, whatever happens, and so is what of it lay apart. One in memory has no
    folder."""
    if folder.is_dir():
        aside = _aside(folder)
        if aside.is_dir():  # of a stream of this name that was removed before
            _empty(aside)
        durable.move(folder, aside)
        _remove(apart)


def wipe(folder: Path) -> None:
    """Empties what was set aside of it."""
    aside = _aside(folder)
    if aside.is_dir():
        _empty(aside)


def wipe_all(parent: Path, apart_of: Callable[[Path], Iterable[Path]]) -> None:
    """What was left behind by a process that ended before it was done."""
    for aside in sorted(parent.glob(f"*{_ENDING}")):
        folder = aside.with_name(aside.name.removesuffix(_ENDING))
        if not folder.is_dir():  # or it is another stream's by now
            _remove(apart_of(folder))
        _empty(aside)


def _aside(folder: Path) -> Path:
    return folder.with_name(folder.name + _ENDING)


def _remove(apart: Iterable[Path]) -> None:
    for path in apart:
        if path.exists():
            durable.remove(path)


def _empty(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        path.unlink()
    folder.rmdir()
    durable.sync_folder(folder.parent)
