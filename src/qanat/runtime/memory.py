"""Memory that a process takes and gives back again and again, by the megabyte, is kept by it in between.

What glibc's allocator gives back to the kernel comes again with a page fault for every 4 KiB: to a reader of a log they were half of its work.
"""

import ctypes
from functools import lru_cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What they are called in malloc.h."""
_TRIM_BYTES = 256 << 20
"""Free at the end of its heap before any is given back."""
_MMAP_BYTES = 32 << 20
"""Larger pieces go straight back; glibc takes no larger number here."""


@lru_cache(1)
def keep_freed_memory() -> bool:
    """For the rest of this process's life; whether its allocator knows how."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, _TRIM_BYTES))
