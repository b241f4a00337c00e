"""Parts of a file that another process of this machine wrote, and names instead of sending them."""

import os

from qanat.events.buffers import Buffers


class Reading:
    """Copies them into memory of this process, where nobody changes them once they are checked."""

    def __init__(self, kept_bytes: int) -> None:
        """`kept_bytes` of used memory are kept for the next."""
        self._buffers = Buffers(kept_bytes)

    def read(self, fd: int, offset: int, size: int) -> memoryview:
        """Raises OSError if the file does not have them."""
        room = self._buffers.room(size)
        done = 0
        while done < size:
            count = os.preadv(fd, [room[done:]], offset + done)
            if not count:
                raise OSError(f"it ends at {offset + done}")
            done += count
        return room.toreadonly()


def is_same(found: os.stat_result, device: int, inode: int) -> bool:
    """Whether it is what the other process means by that path: containers may share a network and no disk."""
    return (found.st_dev, found.st_ino) == (device, inode)
