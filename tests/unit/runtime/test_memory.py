"""Memory that is kept between uses: counted in page faults, in a process of its own."""

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
from qanat.runtime.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def use():
    pieces = [bytearray(24 << 20) for _ in range(3)]
    for piece in pieces:
        piece[::4096] = bytes(len(piece) // 4096)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word: str) -> int:
    done = subprocess.run([sys.executable, "-c", _FAULTS, word], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="it is glibc's allocator that gives memory back"
)
def test_what_is_freed_is_used_again() -> None:
    assert faults("keep") * 10 < faults("leave")
