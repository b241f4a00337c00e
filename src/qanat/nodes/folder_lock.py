"""A data folder belongs to one process."""

import fcntl
import os
from pathlib import Path

from qanat.events.errors import LocalError


def lock_folder(folder: Path) -> int:
    """An advisory lock that ends with the process, however it ends; `os.close` gives it back earlier."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise LocalError(
            f"{folder} is in use by another server; give this one another --data folder"
        ) from None
    return handle
