"""Files and folders that survive a power cut: the one way to replace, make, move and remove them.

A disk may forget bytes that were not synced, and names whose folder was not synced, each by itself. So bytes
are synced before a name leads to them, and the folder after that. Every function returns when what it did
would survive, or raises `OSError` with the old file whole. A crash in the middle may leave a file
`.NAME.new`, which nobody reads; the next replacement writes over it. (A log does the same through its own
`Disk`, so that the simulator can cut the power there.)
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

Sync = Callable[[int], object]


def chosen(system: Any = os, control: Any = fcntl) -> Sync:
    """What makes the bytes of an open file, and its size, survive a power cut on this system."""
    if hasattr(system, "fdatasync"):
        return cast(Sync, system.fdatasync)
    if hasattr(control, "F_FULLFSYNC"):  # macOS, whose `fsync` leaves them in the drive's own memory
        return lambda fd: control.fcntl(fd, control.F_FULLFSYNC)
    return cast(Sync, system.fsync)


sync_data = chosen()


def replace(path: Path, data: bytes, *, mode: int = 0o644, shared: bool = False) -> None:
    """A reader, or who comes after a crash, sees the old file or the new one. `shared`: several may do it at
    once, and the last one counts."""
    os.close(written(path, data, mode=mode, shared=shared))
    sync_folder(path.parent)


def tell(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replaces a file that only tells of a process that runs: a reader sees the old one or the new one, a
    power cut may leave neither."""
    os.close(written(path, data, mode=mode, shared=True, synced=False))


def written(path: Path, data: bytes, *, mode: int = 0o644, shared: bool = False, synced: bool = True) -> int:
    """Replaces the file, and returns the new one open for writing; its name is durable after
    `sync_folder`."""
    fresh = _fresh(path) if shared else leftover(path)
    try:
        handle = _write(fresh, data, os.O_TRUNC, mode, synced=synced)
        try:
            os.replace(fresh, path)
        except BaseException:
            os.close(handle)
            raise
    except BaseException as error:
        _undo(fresh, path, error)
        raise
    return handle


def leftover(path: Path) -> Path:
    """What a crash may leave of a replacement, if it was not `shared`."""
    return path.with_name(f".{path.name}.new")


def make(path: Path, data: bytes, *, mode: int = 0o644) -> bool:
    """A new file, whole or not at all; False, and nothing done, if there is one of that name. Several may try
    at once."""
    fresh, made = _fresh(path), True
    try:
        os.close(_write(fresh, data, os.O_EXCL, mode, synced=True))
        try:
            os.link(fresh, path)  # unlike a rename it fails if the name is taken
        except FileExistsError:  # whoever made it may not have come so far as to sync it
            made = False
        os.unlink(fresh)
    except BaseException as error:
        _undo(fresh, path, error)
        raise
    sync_folder(path.parent)
    return made


def move(old: Path, new: Path) -> None:
    """A file or folder whose own content is synced, or that a crash may cut short: its name goes from one
    folder to the other."""
    os.rename(old, new)
    sync_folder(new.parent)
    if old.parent != new.parent:
        sync_folder(old.parent)


def remove(path: Path) -> None:
    """So that it does not come back."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Makes the folder and its parents, each of which stands in its parent on disk before the next one is
    made.

    The deepest one that is there already is synced too: who made it may have been killed before that.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    with _unless_foreign():
        sync_folder(path.parent)
    for folder in reversed(missing):
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """The folder's names survive."""
    with open_folder(path) as handle, errors_of(path):
        sync_names(handle)


def sync_names(folder: int) -> None:
    """Of a folder that is open."""
    os.fsync(folder)


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """A descriptor with which its names can be synced."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")


def _write(path: Path, data: bytes, flag: int, mode: int, *, synced: bool) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flag, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if synced:
            sync_data(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _undo(fresh: Path, path: Path, error: BaseException) -> None:
    """Nothing is left, and the error says which file could not be written, not by which way."""
    with suppress(OSError):
        fresh.unlink(missing_ok=True)
    if isinstance(error, OSError):
        error.filename, error.filename2 = str(path), None


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Errors of a call with a descriptor do not say of which file they are."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def _unless_foreign() -> Iterator[None]:
    """A folder above ours that we may not read is one that we did not make."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
