"""The streams of a server, by name: which there are, where they lie, and how each is kept.

`data/streams/<number>/` holds a stream's log, where the number is its identifier in hex, and `stream.json` its name and
configuration. A second name with the same identifier is refused: the identifier is a hash, and a hash alone never decides.
"""

import asyncio
import os
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

import msgspec

from qanat.events.batch import stream_id
from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError
from qanat.events.ranges import check_name
from qanat.log import StreamLog
from qanat.log.config import LogConfig
from qanat.log.disk import Disk, OsDisk, write_atomically
from qanat.log.errors import CorruptLog, DiskFailed, DiskFull
from qanat.nodes.caravan_settings import CaravanControl
from qanat.nodes.hosted_stream import HostedStream
from qanat.nodes.refusals import NoStream, StreamLimit
from qanat.nodes.room import Room
from qanat.runtime import descriptors
from qanat.runtime.folder_lock import lock_folder

_CARD = "stream.json"


class _Card(msgspec.Struct, frozen=True):
    """What `stream.json` says; `crc` covers the other two."""

    name: str
    config: LogConfig
    crc: int = 0

    def checksum(self) -> int:
        return crc32c(self.name.encode() + b"\0" + msgspec.json.encode(self.config))


class StreamRegistry:
    """All streams of one data folder."""

    def __init__(
        self,
        data: str,
        default: LogConfig,
        configured: dict[str, LogConfig],
        max_streams: int,
        pool: Executor,
        caravans: CaravanControl | None = None,
    ) -> None:
        self.streams: dict[str, HostedStream] = {}
        self.by_id: dict[int, HostedStream] = {}
        self.notes: list[str] = []
        """What opening had to cut off after a crash, one sentence each."""
        self.max_streams = max_streams
        self._folder = Path(data) / "streams"
        self._default, self._configured, self._pool = default, configured, pool
        self.caravans = caravans or CaravanControl()
        self._disk: Disk = OsDisk()
        self._lock: int | None = None
        self._room = Room("new streams")

    def open_all(self) -> None:
        """Takes the folder for this process alone, and opens the streams that are in it and those configured."""
        self._lock = lock_folder(self._folder.parent)
        self._disk.make_folder(str(self._folder))
        for folder in sorted(self._folder.iterdir()):
            card = folder / _CARD
            if card.exists():
                self._open(folder, _card_of(card.read_bytes(), card))
        for name in self._configured:
            self.get_or_make(name)

    def get(self, name: str) -> HostedStream:
        stream = self.streams.get(name)
        if stream is None:
            raise NoStream(f"there is no stream {name!r} here; publish to it to make it")
        return stream

    def missing(self, number: int) -> LocalError:
        return NoStream("the batch is of a stream that was not opened here")

    def to_publish(self, name: str, create: bool, durability: str) -> HostedStream:
        return self.get_or_make(name, durability) if create else self.get(name)

    def to_read(self, name: str) -> HostedStream:
        return self.get_or_make(name)

    def to_look(self, name: str) -> HostedStream:
        return self.get(name)

    def get_or_make(self, name: str, durability: str = "") -> HostedStream:
        stream = self.streams.get(name)
        if stream is not None:
            return stream
        check_name(name, "a stream's name")
        number = stream_id(name)
        if number in self.by_id:
            raise LocalError(
                f"{name!r} and {self.by_id[number].name!r} have the same identifier; take another name"
            )
        if len(self.streams) >= self.max_streams:
            raise StreamLimit(f"there are {self.max_streams} streams here already (max_streams)")
        if not descriptors.for_stream(descriptors.lowest_free()):
            raise StreamLimit(
                f"there is no descriptor for another stream's files: {descriptors.limit()} may be open; raise the limit (ulimit -n)"
            )
        config = self._configured.get(name, self._default)
        if durability and name not in self._configured:
            try:
                config = msgspec.convert(msgspec.to_builtins(config) | {"mode": durability}, LogConfig)
            except msgspec.ValidationError as error:
                raise LocalError(
                    f"durability {durability!r}: choose always, interval or memory ({error})"
                ) from error
        try:
            made = self._make(name, config)
        except DiskFull as error:
            self._room.refused(error)
            raise
        self._room.taken()
        return made

    def _make(self, name: str, config: LogConfig) -> HostedStream:
        folder = self._folder / f"{stream_id(name):016x}"
        card = _Card(name, config)
        if config.mode != "memory":
            self._disk.make_folder(str(folder))
            encoded = msgspec.json.encode(msgspec.structs.replace(card, crc=card.checksum()))
            write_atomically(self._disk, str(folder), _CARD, encoded)
            self._disk.sync_folder(str(self._folder))
        try:
            return self._open(folder, card)
        except DiskFull:
            # It was not made: without its card a server that starts while there is no room does not stumble over it.
            with suppress(FileNotFoundError, DiskFailed):
                self._disk.remove(f"{folder}/{_CARD}")
            raise

    def _open(self, folder: Path, card: _Card) -> HostedStream:
        # What the configuration says today wins over what it said when the stream was made.
        config = self._configured.get(card.name, card.config)
        number = stream_id(card.name)
        log = StreamLog.open(self._disk, str(folder), number, config)
        self.notes += [f"{card.name}: {note}" for note in log.recovery_notes]
        stream = HostedStream(card.name, log, self._pool)
        stream.trailing.control = self.caravans
        self.streams[card.name] = self.by_id[number] = stream
        return stream

    async def close(self) -> None:
        await asyncio.gather(*(stream.close() for stream in self.streams.values()))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _card_of(data: bytes | bytearray, path: Path) -> _Card:
    try:
        card = msgspec.json.decode(data, type=_Card)
        if card.checksum() != card.crc:
            raise LocalError("its checksum does not match")
    except (msgspec.DecodeError, UnicodeError, LocalError) as error:  # no JSON, no text, no configuration
        reason = f"it is not the card that was written: {error}"
        advice = "restore it from a replica or a backup of this folder"
        raise CorruptLog(str(path), 0, reason, advice) from error
    return card
