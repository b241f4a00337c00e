"""A proxy's history over stream logs: one log per stream, on any disk.

What was synced of each log is written down apart from them, in a folder beside theirs: a stream whose folder
vanished is known by that (see `qanat.log.synced`).

Appending never waits for the disk. `wants_sync(stream)` is called when something was appended that is not on
disk yet; whoever gets that runs `sync(stream)` where it may block, at once or, in mode `interval`, within
that time, and tells the machine `Synced`.
"""

from collections.abc import Callable
from contextlib import suppress

from qanat.events.batch import Batch
from qanat.log import LogConfig, StreamLog
from qanat.log.disk import Disk
from qanat.log.errors import CorruptLog, SequenceGap
from qanat.log.reader import Truncated
from qanat.log.synced import remove
from qanat.protocols.history import Highest, HistoryGap, HistoryTruncated, Numbered

SYNCED = ".synced"
"""What the folder of what was synced is called, after the name of the streams' one."""
WIPING = "wiping"
"""A file of this name in a stream's folder: its history is void, and whoever opens it finishes removing
it."""


class LogHistory:
    """Implements `History`. Streams that lie in `folder` are opened at once, others when they are first
    appended to.

    `config_of(stream)` gives a stream's durability and policies; in mode `memory` nothing is on disk and
    everything counts as durable. `damaged(stream, error)` is told of damage that a reader finds, before the
    error goes on its way.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        config_of: Callable[[int], LogConfig] = lambda stream: LogConfig(),
        wants_sync: Callable[[int], None] = lambda stream: None,
        damaged: Callable[[int, CorruptLog], object] = lambda stream, error: None,
    ) -> None:
        self._disk, self._folder, self._synced = disk, folder, folder + SYNCED
        self._config_of, self._wants_sync, self._damaged = config_of, wants_sync, damaged
        disk.make_folder(folder)
        disk.make_folder(self._synced)
        self.logs: dict[int, StreamLog] = {}
        try:
            for name in sorted({*disk.list(folder), *disk.list(self._synced)}):
                with suppress(ValueError):
                    self.open(int(name, 16))
        except CorruptLog:
            self.close()
            raise

    def streams(self) -> list[int]:
        return sorted(stream for stream, log in self.logs.items() if log.next > 1)

    def counter(self, stream: int) -> int:
        log = self.logs.get(stream)
        return 0 if log is None else log.next - 1

    def durable(self, stream: int) -> int:
        log = self.logs.get(stream)
        if log is None:
            return 0
        return log.durable if log.config.mode == "always" else log.next - 1

    def synced(self, stream: int) -> int | None:
        log = self.logs.get(stream)
        if log is None:
            return 0 if self._config_of(stream).mode == "always" else None
        return log.durable if log.config.mode == "always" else None

    # Appending

    def append(self, batch: Batch) -> Numbered:
        appended = self._log(batch.stream).append(batch)
        self._appended(batch.stream)
        return Numbered(*appended)

    def append_numbered(self, batch: Batch) -> None:
        log = self._log(batch.stream)
        try:
            log.append_numbered(batch)
        except SequenceGap as error:
            raise HistoryGap(str(error)) from error
        self._appended(batch.stream)

    def _appended(self, stream: int) -> None:
        log = self.logs[stream]
        if log.config.mode != "memory" and log.durable < log.next - 1:
            self._wants_sync(stream)

    def sync(self, stream: int) -> int:
        """Blocks until what was appended before would survive a power cut; for a worker thread."""
        return self.logs[stream].sync()

    # Reading

    def read(self, stream: int, start: int, max_bytes: int, upto: int | None = None) -> list[Batch]:
        log = self.logs.get(stream)
        if log is None:
            return []
        limit = log.next - 1 if upto is None else upto
        try:
            chunk = log.read(start, max_bytes, upto=limit)
        except CorruptLog as error:
            self._damaged(stream, error)
            raise
        if isinstance(chunk, Truncated):
            raise HistoryTruncated(stream, chunk.first, chunk.last)
        return [batch for batch in chunk.batches() if batch.last <= limit]

    # Positions

    def positions(self, stream: int) -> dict[str, tuple[int, int]]:
        log = self.logs.get(stream)
        return {} if log is None else dict(log.positions())

    def adopt_positions(self, stream: int, highest: Highest) -> None:
        self._log(stream).adopt_positions(dict(highest))

    # Files

    def reset(self, stream: int) -> None:
        """Forget a stream altogether, durably: its history turned out not to be the chain's. Blocks."""
        self.wipe(stream, self.detach(stream))

    def detach(self, stream: int) -> StreamLog | None:
        """The first half of `reset`, which does not block: the stream is as if it had never been, until it is
        opened."""
        return self.logs.pop(stream, None)

    def wipe(self, stream: int, log: StreamLog | None) -> None:
        """The second half, for a worker thread."""
        if log is not None:
            log.close()
        folder = self._path(stream)
        if folder.rsplit("/", 1)[-1] in self._disk.list(self._folder):
            self._disk.open(f"{folder}/{WIPING}").close()
            self._disk.sync_folder(folder)
            self._wipe(stream, folder)

    def _wipe(self, stream: int, folder: str) -> None:
        remove(self._disk, self._record(stream))
        for name in self._disk.list(folder):
            if name != WIPING:
                self._disk.remove(f"{folder}/{name}")
        self._disk.sync_folder(folder)
        self._disk.remove(f"{folder}/{WIPING}")
        self._disk.sync_folder(folder)

    def close(self) -> None:
        for log in self.logs.values():
            log.close()

    def _log(self, stream: int) -> StreamLog:
        return self.logs.get(stream) or self.open(stream)

    def open(self, stream: int) -> StreamLog:
        config, folder = self._config_of(stream), self._path(stream)
        if config.mode != "memory":
            there = folder.rpartition("/")[2] in self._disk.list(self._folder)
            if there and WIPING in self._disk.list(folder):
                self._wipe(stream, folder)
        record = self._record(stream)
        log = self.logs[stream] = StreamLog.open(self._disk, folder, stream, config, synced=record)
        return log

    def reopen(self, stream: int) -> StreamLog:
        """Opens a log anew, under what `config_of` says of it now; blocks for a sync."""
        self.logs.pop(stream).close()
        return self.open(stream)

    def _path(self, stream: int) -> str:
        return f"{self._folder}/{stream:016x}"

    def _record(self, stream: int) -> str:
        return f"{self._synced}/{stream:016x}"
