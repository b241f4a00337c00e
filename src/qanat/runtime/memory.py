"""Memory of this process: how much it has, how much there is, and what becomes of what is freed.

What a process takes and gives back again and again, by the megabyte, it may keep in between: what glibc's
allocator gives back to the kernel comes again with a page fault for every 4 KiB, which was half of the work
of a reader of a log.
"""

import ctypes
import os
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What they are called in malloc.h."""
_TRIM_BYTES = 256 << 20
"""Free at the end of its heap before any is given back."""
_MMAP_BYTES = 32 << 20
"""Larger pieces go straight back; glibc takes no larger number here."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NO_LIMIT = 1 << 60
"""What version 1 of control groups says for none is a little below 2^63."""


@lru_cache(1)
def keep_freed_memory() -> bool:
    """For the rest of this process's life; whether its allocator knows how."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, _TRIM_BYTES))


def give_back() -> None:
    """What is free goes back to the system, from glibc's allocator and from Arrow's. Other threads go on
    meanwhile."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
        trim(0)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()


def own_bytes() -> int:
    """The pages that are its own: those of mapped files are the page cache's, which the system takes back
    when it needs them. 0 where it does not say."""
    resident, shared = _pages()
    return resident - shared


def code_bytes() -> int:
    """The pages of files that it has mapped; of a process that has just begun, those of its programs."""
    return _pages()[1]


def _pages() -> tuple[int, int]:
    """Bytes that it has, and those of them that are mapped from files."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0, 0
    return resident * _PAGE, shared * _PAGE


def machine_bytes(root: Path = Path("/")) -> int:
    """What this process may have at most: the machine's memory, or its control group's limit if that is
    lower."""
    limits = [_NO_LIMIT]
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                limits.append(int(line.split()[1]) * 1024)
    for place in _control_groups(root):
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            limits.append(int(place.read_text()))
    found = min(limits)
    return found if found < _NO_LIMIT else _PAGE * os.sysconf("SC_PHYS_PAGES")


def _control_groups(root: Path) -> list[Path]:
    """Where limits may stand, of both versions; a container sees its own group as the uppermost."""
    mounted = root / "sys/fs/cgroup"
    found = [mounted / "memory.max", mounted / "memory/memory.limit_in_bytes"]
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            group = path.strip("/")
            while group:  # a limit of any group above holds as well
                if not kinds:
                    found.append(mounted / group / "memory.max")
                elif "memory" in kinds.split(","):
                    found.append(mounted / "memory" / group / "memory.limit_in_bytes")
                group = group.rpartition("/")[0]
    return found
