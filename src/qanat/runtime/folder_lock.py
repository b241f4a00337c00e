"""A folder belongs to one process."""

import fcntl
import os
import time
from pathlib import Path

from qanat.events.durable import make_folder
from qanat.events.errors import LocalError

FILE = "lock"
IN_USE = "is in use by another server; give this one another folder (node.data)"
_GLANCE_S = 0.05
"""Whoever only looks (`is_locked`) has it for some microseconds."""


def lock_folder(folder: Path, refusal: str = IN_USE) -> int:
    """An advisory lock that ends with the process, however it ends; `os.close` gives it back earlier."""
    make_folder(folder)
    handle = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o644)
    for last_try in (False, True):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if last_try:
                os.close(handle)
                raise LocalError(f"{folder} {refusal}") from None
            time.sleep(_GLANCE_S)
        else:
            break
    return handle


def is_locked(folder: Path) -> bool:
    """Whether some process has it now."""
    try:
        handle = os.open(folder / FILE, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
