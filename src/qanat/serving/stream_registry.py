"""The streams of a server, by name: which there are, where they lie, and how each is kept.

`data/streams/<number>/` holds a stream's log, where the number is its identifier in hex, and `stream.json`
its name and configuration. Apart from that, so that nothing of it vanishes unnoticed, lie
`data/streams.synced/<number>`, what was synced of the log, and `<number>.json`, the second copy of the card.
A second name with the same identifier is refused: the identifier is a hash, and a hash alone never decides.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from qanat.events.batch import stream_id
from qanat.events.checksum import crc32c
from qanat.events.durable import move
from qanat.events.errors import LocalError
from qanat.events.kept import Damaged, Kept
from qanat.events.ranges import check_name
from qanat.log import StreamLog
from qanat.log.config import LogConfig
from qanat.log.disk import Disk, OsDisk, translated
from qanat.log.errors import CorruptLog, DiskFull
from qanat.log.rekeeping import LIVE, check_rekeeping, differing, keep_as
from qanat.log.said import MADE, BadSettings, changed
from qanat.log.synced import NAME
from qanat.runtime import descriptors
from qanat.runtime.budget import MemoryBudget
from qanat.runtime.folder_lock import lock_folder
from qanat.serving.caravan_settings import CaravanControl
from qanat.serving.disk_watch import Room
from qanat.serving.hosted_stream import HostedStream
from qanat.serving.log_history import SYNCED
from qanat.serving.refusals import Declared, NoStream, StreamExists, StreamLimit
from qanat.serving.removed_streams import RemovedStreams, set_aside, wipe, wipe_all

log = logging.getLogger("qanat.streams")

_CARD = "stream.json"
_NUMBER = re.compile("[0-9a-f]{16}")


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
        memory: MemoryBudget | None = None,
    ) -> None:
        self.streams: dict[str, HostedStream] = {}
        self.by_id: dict[int, HostedStream] = {}
        self.notes: list[str] = []
        """What opening had to cut off after a crash, one sentence each."""
        self.max_streams = max_streams
        self._folder = Path(data) / "streams"
        self._synced = self._folder.with_name(self._folder.name + SYNCED)
        self._default, self._configured, self._pool = default, configured, pool
        self.caravans = caravans or CaravanControl()
        self._memory = memory
        self._disk: Disk = OsDisk()
        self._lock: int | None = None
        self._room = Room("new streams")
        self._removed = RemovedStreams()

    def open_all(self) -> None:
        """Takes the folder for this process alone, and opens the streams that are in it and those
        configured."""
        self._lock = lock_folder(self._folder.parent)
        for folder in (self._folder, self._synced):
            self._disk.make_folder(str(folder))
        wipe_all(self._folder, self._apart)
        names = {path.name for path in self._folder.iterdir()}
        names |= {path.stem for path in self._synced.iterdir() if _NUMBER.fullmatch(path.stem)}
        for folder in (self._folder / name for name in sorted(names)):
            card = self._read_card(folder)
            if card is not None:
                self._open(folder, card)
        for name in self._configured:
            self.get_or_make(name)

    def get(self, name: str) -> HostedStream:
        stream = self.streams.get(name)
        if stream is None:
            raise NoStream(
                self._removed.why(name) or f"there is no stream {name!r} here; publish to it to make it"
            )
        return stream

    def missing(self, number: int) -> LocalError:
        why = self._removed.why_number(number)
        return NoStream(why or "the batch is of a stream that was not opened here")

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
        config = self._configured.get(name, self._default)
        if durability and name not in self._configured:
            try:
                config = msgspec.convert(msgspec.to_builtins(config) | {"mode": durability}, LogConfig)
            except msgspec.ValidationError as error:
                raise LocalError(
                    f"durability {durability!r}: choose always, interval or memory ({error})"
                ) from error
        return self._new(name, config)

    def _new(self, name: str, config: LogConfig) -> HostedStream:
        check_name(name, "a stream's name")
        number = stream_id(name)
        self._removed.check_gone(name)
        if number in self.by_id:
            raise LocalError(
                f"{name!r} and {self.by_id[number].name!r} have the same identifier; take another name"
            )
        if len(self.streams) >= self.max_streams:
            raise StreamLimit(f"there are {self.max_streams} streams here already (max_streams)")
        if self._memory is not None:
            self._memory.refuse_new("stream")
        if not descriptors.for_stream(descriptors.lowest_free()):
            raise StreamLimit(
                f"there is no descriptor for another stream's files: {descriptors.limit()} may be open; raise"
                " the limit (ulimit -n)"
            )
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
        try:
            if config.mode != "memory":
                self._disk.make_folder(str(folder))
                self._write_card(folder, card)
            return self._open(folder, card)
        except DiskFull:
            # It was not made: without its card a server that starts while there is no room does not stumble
            # over it.
            with suppress(OSError):
                self._card(folder).remove()
            raise

    def _open(self, folder: Path, card: _Card) -> HostedStream:
        # What the configuration says today wins over what it said when the stream was made.
        config = self._configured.get(card.name, card.config)
        number = stream_id(card.name)
        record, _ = self._apart(folder)
        before = folder / NAME
        if config.mode != "memory" and before.exists() and not record.exists():
            move(before, record)  # where an earlier version kept it
        log = StreamLog.open(self._disk, str(folder), number, config, synced=str(record))
        self.notes += [f"{card.name}: {note}" for note in log.recovery_notes]
        stream = HostedStream(card.name, log, self._pool)
        stream.trailing.control = self.caravans
        self.streams[card.name] = self.by_id[number] = stream
        return stream

    def _write_card(self, folder: Path, card: _Card) -> None:
        encoded = msgspec.json.encode(msgspec.structs.replace(card, crc=card.checksum()))
        kept = self._card(folder)
        with translated("write", str(kept.path)):
            kept.write(encoded)

    # --- orders -------------------------------------------------------------------------------------

    async def order(self, what: str, name: str, settings: bytes) -> None:
        match what:
            case "create":
                if name in self.streams:
                    raise StreamExists(f"there is a stream {name!r} already; `set` changes how it is kept")
                self._new(name, changed(self._configured.get(name, self._default), settings))
            case "set":
                await self._set(self.get(name), settings)
            case "remove":
                await self._remove(self.get(name))
            case _:
                raise LocalError(f"{what!r} is no order for a stream")

    async def _set(self, stream: HostedStream, settings: bytes) -> None:
        self._check_undeclared(stream.name, "change how it is kept there, and send the server SIGHUP")
        old = stream.log.config
        new = changed(old, settings)
        fixed = sorted(differing(old, new) & MADE)
        if fixed:
            raise BadSettings(f"{', '.join(fixed)} of a stream is said when it is made, and stays")
        check_rekeeping(old, new)
        if new.mode != "memory":
            folder = self._folder / f"{stream.log.stream:016x}"
            await self._in_thread(self._write_card, folder, _Card(stream.name, new))
        await self._in_thread(keep_as, stream.log, new)

    async def _remove(self, stream: HostedStream) -> None:
        self._check_undeclared(stream.name, "take it out there and start the server again, then remove it")
        number = stream.log.stream
        why = f"stream {stream.name!r} was removed from the server {time.strftime('at %H:%M:%S')}"
        with self._removed.going(stream.name, number, why):
            del self.streams[stream.name], self.by_id[number]
            stream.end_subscriptions(NoStream(why))
            await stream.settle()
            stream.failed, stream.removed = why, True
            await stream.close()
            folder = self._folder / f"{number:016x}"
            await self._in_thread(set_aside, folder, self._apart(folder))
        try:
            await self._in_thread(wipe, folder)
        except OSError as error:  # it is gone all the same; the next start goes on emptying what is left
            log.warning(
                "files of a removed stream are left", extra={"stream": stream.name, "reason": str(error)}
            )

    def _check_undeclared(self, name: str, how: str) -> None:
        if name in self._configured:
            raise Declared(f"stream {name!r} stands in the server's file, in [stream.{name}]: {how}")

    async def _in_thread(self, work: Callable[..., object], *words: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *words))

    async def reload(self, configured: dict[str, LogConfig]) -> list[str]:
        """The server's file says other things of its streams. Makes those that are new; returns those that
        take part of it with a restart."""
        self._configured = configured
        late = []
        for name, config in configured.items():
            stream = self.get_or_make(name)
            differ = differing(stream.log.config, config)
            stuck = "mode" in differ and "memory" in (stream.mode, config.mode)
            if differ - LIVE or stuck:
                late.append(name)
            if stuck:
                config = msgspec.structs.replace(config, mode=stream.mode)
            if differ & LIVE:
                await self._in_thread(keep_as, stream.log, config)
        return late

    async def close(self) -> None:
        await asyncio.gather(*(stream.close() for stream in self.streams.values()))
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _apart(self, folder: Path) -> tuple[Path, Path]:
        """What of a stream lies outside of its folder: the record of what was synced, and the card's twin."""
        return self._synced / folder.name, self._synced / f"{folder.name}.json"

    def _card(self, folder: Path) -> Kept:
        return Kept(folder / _CARD, self._apart(folder)[1], say=self.notes.append)

    def _read_card(self, folder: Path) -> _Card | None:
        """None of a stream that was never made to its end: nothing was acknowledged of it."""
        kept = self._card(folder)
        if not kept.exists():
            record, twin = self._apart(folder)
            if record.exists():
                reason = f"it is gone, and so is {twin}, though the stream was synced, as {record} says"
                raise CorruptLog(str(kept.path), 0, reason, "restore one of them from a backup")
            return None
        if not folder.is_dir():
            self._disk.make_folder(str(folder))
        try:
            data = kept.mend()
        except Damaged:
            reason = f"so is its twin {kept.twin}"
            raise CorruptLog(str(kept.path), 0, reason, "restore one of them from a backup") from None
        return None if data is None else _card_of(data, kept.path)


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
