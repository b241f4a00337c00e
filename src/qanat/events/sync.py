"""Bytes that survive a power cut: one way for logs and journals, which know nothing of each other."""

import fcntl
import os
from collections.abc import Callable
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
