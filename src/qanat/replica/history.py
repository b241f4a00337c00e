"""A replica's logs on a disk that may be full: who is refused is told which disk that is, and so are
people."""

from collections.abc import Callable

from qanat.events.batch import Batch
from qanat.log import LogConfig
from qanat.log.disk import Disk
from qanat.log.errors import CorruptLog, DiskFull, OutOfDescriptors
from qanat.protocols.history import Numbered
from qanat.serving.disk_room import DiskRoom
from qanat.serving.log_history import LogHistory


class ReplicaHistory(LogHistory):
    """`room` is told of what found none; the rest is as for `LogHistory`."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        config_of: Callable[[int], LogConfig],
        wants_sync: Callable[[int], None],
        damaged: Callable[[int, CorruptLog], object],
        room: DiskRoom,
    ) -> None:
        self._room = room
        super().__init__(disk, folder, config_of, wants_sync, damaged)

    def append(self, batch: Batch) -> Numbered:
        try:
            numbered = super().append(batch)
        except DiskFull as error:
            raise self._full(error, self._room.refusal) from error
        self._room.taken()
        return numbered

    def append_numbered(self, batch: Batch) -> None:
        try:
            super().append_numbered(batch)
        except DiskFull as error:
            raise self._full(error, lambda: self._room.sentence) from error
        self._room.taken()

    def _full(self, error: DiskFull, words: Callable[[], str]) -> DiskFull:
        """A shortage of descriptors has its own words."""
        if isinstance(error, OutOfDescriptors):
            return error
        self._room.refused()
        return DiskFull(words())
