"""A publisher as a process: reads the log of its datastore, and serves the flows of applications on a
socket."""

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import assert_never

import msgspec

from qanat import __version__
from qanat.capture.reader import Acknowledging, LogReader
from qanat.capture.sharding import Sharding
from qanat.capture.url import SnapshotChunks, open_chunks, open_reader, split_warning, with_password
from qanat.coordinate import Session
from qanat.events.errors import LocalError, RemoteError
from qanat.kernel import Address, Context
from qanat.protocols.publisher.config import PublisherConfig
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.reading import (
    CloseLog,
    Configure,
    Locate,
    Measure,
    PublisherItem,
    PublisherRequest,
    Quit,
    ReadLog,
    Settle,
    Settled,
    WasOther,
    WasRead,
)
from qanat.protocols.publisher.records import compact
from qanat.publisher.admin import PublisherAdmin
from qanat.publisher.archived_log import with_archive
from qanat.publisher.archived_positions import ArchivedPositions
from qanat.publisher.changes import Changeable, Changes
from qanat.publisher.logs import Readers
from qanat.publisher.metrics import export_publisher
from qanat.publisher.notes import PublisherNotes
from qanat.publisher.rates import Rates
from qanat.publisher.settings import PublisherSettings
from qanat.publisher.status import publisher_status
from qanat.publisher.tables import TableReaders
from qanat.replica.coordination import (
    Coordination,
    coordinator_members,
    coordinator_name,
    coordinator_servers,
)
from qanat.runtime.admin_note import leave_note, remove_note
from qanat.runtime.clocks import monotonic_us, wall_clock_us
from qanat.runtime.config import Loaded, reload
from qanat.runtime.driver import Driver
from qanat.runtime.folder_lock import lock_folder
from qanat.runtime.node import Node
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.runtime.url import Url, parse_url

log = logging.getLogger("qanat.publisher")

_WAIT_S = 0.2
"""Between two looks for a datastore that is away."""
_LOOK_S = 1.0
"""How often a datastore that waits for it is told what is marked; and between two samples of what is
counted."""


class PublisherNode(Node[PublisherSettings]):
    """`await node.serve()` runs it to its end; `on_start` and `on_stop` alone embed it in another process."""

    def __init__(self, loaded: Callable[[], Loaded[PublisherSettings]]) -> None:
        self._changeable = Changeable(loaded)
        super().__init__(self._changeable.load)
        self.data = Path(self.settings.node.data).absolute()
        self._notes = PublisherNotes(self.data, self.data / "journals" / "publisher.journal")
        self.failure = ""
        self.machine: Publisher | None = None
        self.readers: Readers
        self.driver: Driver
        self._coordination: Coordination
        self.source = ""
        self.archive: ArchivedPositions | None = None
        self._one_reader = False
        self.waits = ""
        """Why it cannot start yet."""
        self._disputed = ""
        self._troubles: dict[tuple[str, int], str] = {}
        self._url: Url | None = None
        self._lock: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.rates = Rates()
        self._read_delay = self.metrics.histogram(
            "publisher_read_delay_seconds",
            "From the commit of the last update of each read until the read.",
        )
        self._loop_delay = self.metrics.histogram(
            "publisher_loop_delay_seconds", "Delay of the process's task of every second."
        )
        export_publisher(self.metrics, self)
        PublisherAdmin(self)

    @property
    def url(self) -> str:
        return "" if self._url is None else str(self._url)

    @property
    def _has_copies(self) -> bool:
        return bool(self._coordinator)

    @property
    def _coordinator(self) -> str:
        return coordinator_name(self.settings.coordinator.name, self.settings.coordinator.url)

    # --- life ---------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        if not self.settings.log.url:
            raise LocalError("there is no log to publish: set log.url, for example to rocksdb:///folder")
        self._lock = lock_folder(self.data)
        try:
            await self._set_up()
        except BaseException:
            remove_note(self.data)
            raise

    async def _set_up(self) -> None:
        if self.admin.port:
            note = leave_note(self.data, self.settings.admin.host, self.admin.port)
            self.admin.token = note.token
        loop = asyncio.get_running_loop()
        await self._find_log()

        def tell(request: PublisherRequest) -> None:
            if isinstance(request, WasRead) and request.batch is not None and request.batch.count:
                delay_us = wall_clock_us() - int(request.batch.times()[-1])
                self._read_delay.observe(max(0, delay_us) / 1e6)
            if isinstance(request, WasOther) and request.reason != self._disputed:
                self._disputed = request.reason
                log.error("the log is of another history", extra={"reason": request.reason})
            loop.call_soon_threadsafe(self.tell, request)

        settings = self.settings
        self.readers = self.make_readers(tell)
        self.driver = self.make_driver(
            self._book,
            folder=self.data / "journals",
            on_failure=lambda machine, reason: self._fail(reason),
            compression=self._compression,
        )
        self.driver.add(FIRST_MACHINE_CHANNEL, "publisher", self._make, self._deliver, compact=compact)
        coordinator = settings.coordinator
        self._coordination = Coordination(
            self.driver, self._coordinator, coordinator.url, settings.session, settings.zookeeper
        )
        if not self._has_copies:  # with them the datamarkers are kept by the coordinator
            self._notes.refuse_lost()
        self._url = await self.driver.start(*parse_url(settings.node.listen))
        if not self._has_copies:
            self._notes.begin()
        self._tasks = [asyncio.create_task(self._look())]
        log.info("publishing", extra={"url": self.url, "log": self.source, "data": str(self.data)})
        gc.freeze()  # what is here now stays: the collector need not look at it again and again

    async def on_stop(self) -> None:
        """Its note goes however it ends, also when it takes too long. The folder is another's only when
        nothing is written to it any more."""
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.tell(Quit())
            await self.driver.stop()
            await self._coordination.close()
            await asyncio.to_thread(self.readers.close)
        finally:
            if self._lock is not None:
                remove_note(self.data)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- settings -----------------------------------------------------------------------------------

    @property
    def changes(self) -> Changes:
        """What operators changed since the file was written."""
        return self._changeable.changes

    @property
    def said(self) -> PublisherSettings:
        """The settings without these changes."""
        return self._changeable.said

    def change(self, changes: Changes) -> None:
        """Operators want these changes of the file's settings; raises what is wrong with them. They are on
        disk when it returns."""
        result = reload(self.settings, self._changeable.change(changes))
        self.settings = result.settings
        log.info("changed by an operator", extra={"changed": ",".join(result.applied) or "nothing"})
        self.on_reload(result.applied)

    def on_reload(self, applied: list[str]) -> None:
        machine = self.machine
        if machine is None:  # it starts with what it was told last
            return
        if any(key.startswith(("publisher.", "applications", "companies")) for key in applied):
            self.driver.tell(FIRST_MACHINE_CHANNEL, self._configuration())

    def _configuration(self) -> Configure:
        return Configure(dict(self.settings.applications), self._limits(), self.settings.companies)

    def _fail(self, reason: str) -> None:
        """Its journal failed, or it has a bug: what it knows is on disk, so it ends and may be started
        again."""
        self.failure = reason
        self.stop()

    # --- the log ------------------------------------------------------------------------------------

    def _open(self) -> LogReader:
        reader = open_reader(with_password(self.settings.log.url))
        return reader if self.archive is None else with_archive(reader, self.archive)

    def _open_tables(self) -> SnapshotChunks:
        return open_chunks(with_password(self.settings.log.url))

    def _find_archive(self) -> ArchivedPositions | None:
        """One that is not there yet may come."""
        settings = self.settings.log
        if not settings.archive:
            return None
        found = ArchivedPositions(settings.archive, settings.archived_as, self.source)
        if not found.history.newest().version:
            log.warning(
                "there is no archive yet", extra={"archive": settings.archive, "stream": settings.archived_as}
            )
        return found

    async def _find_log(self) -> None:
        """One that has served waits for its datastore, since after a power cut both start at once; a new one
        is told that it leads nowhere."""
        if warning := split_warning(self.settings.log.url, Sharding.parse(self.settings.log.sharding)):
            log.warning(warning)
        while True:
            try:
                await asyncio.to_thread(self._look_at_log)
            except RemoteError as error:
                if not self._notes.has_served or self._stopping.is_set():
                    raise
                if not self.waits:
                    log.warning("the log cannot be read; it is waited for", extra={"reason": str(error)})
                self.waits = str(error)
                await asyncio.sleep(_WAIT_S)
            else:
                self.waits = ""
                return

    def make_readers(self, tell: Callable[[PublisherRequest], None]) -> Readers:
        """They answer by `tell`, from any thread."""
        settings = self.settings.log
        sharding = Sharding.parse(settings.sharding)
        return TableReaders(self._open, self._open_tables, self.source, sharding, settings.chunk_bytes, tell)

    def _look_at_log(self) -> None:
        """Datamarkers count in one dataset, by its shards: a folder that has those of another is not used for
        this one."""
        sharding = Sharding.parse(self.settings.log.sharding)
        reader = self._open()
        try:
            self.source = reader.source
            self._one_reader = isinstance(reader, Acknowledging)
            if (self._has_copies or self.settings.log.archive) and not reader.identified:
                raise LocalError(
                    f"{reader.source!r} may be the name of another dataset as well, and copies and archives"
                    " of one are known by it: give it a name of its own, the same for all copies and for the"
                    " stream, by ?dataset=NAME in log.url"
                )
            self.archive = self._find_archive()
        finally:
            reader.close()
        self._notes.keep("dataset", self.source, "are of {}, and log.url leads to {}")
        self._notes.keep("sharding", str(sharding), "are of the shards by {}, and log.sharding is {}")
        self._notes.keep(
            "parts", str(self.settings.publisher.parts), "are of {} parts, and publisher.parts is {}"
        )

    async def _look(self) -> None:
        while True:
            if self.machine is not None:
                self.rates.sample(self._counters(self.machine))
                self._tell_troubles(self.machine)
                if self._one_reader:  # its datastore keeps the log until it is told what is done with
                    self.tell(Settle())
            began = time.monotonic()
            await asyncio.sleep(_LOOK_S)
            self._loop_delay.observe(max(0.0, time.monotonic() - began - _LOOK_S))

    def _tell_troubles(self, machine: Publisher) -> None:
        """Once each."""
        before, self._troubles = (
            self._troubles,
            {
                (name, part): why
                for name, served in machine.served.items()
                for part, why in served.troubles.items()
            },
        )
        for place, why in self._troubles.items():
            if before.get(place) != why:
                log.error(
                    "a part is in trouble", extra={"application": place[0], "part": place[1], "reason": why}
                )

    @staticmethod
    def _counters(machine: Publisher) -> dict[str, int]:
        found = {"read_updates": machine.read_updates, "read_bytes": machine.read_bytes}
        for name, served in machine.served.items():
            found[f"updates/{name}"] = served.sent_updates
            found[f"bytes/{name}"] = served.sent_bytes
        return found

    # --- the machine --------------------------------------------------------------------------------

    def _make(self, context: Context) -> Publisher:
        settings, applications = self.settings, dict(self.settings.applications)
        if not self._has_copies:
            self.machine = Publisher(context, self._limits(), applications, companies=settings.companies)
            return self.machine
        servers = coordinator_servers(settings.coordinator.name, settings.coordinator.url)
        self.machine = CopyPublisher(
            context,
            self._limits(),
            applications,
            partial(self._connect, servers),
            f"/publishers/{self.source.replace('/', '~')}",
            sharding=str(Sharding.parse(settings.log.sharding)),
            companies=settings.companies,
        )
        return self.machine

    def _connect(self, servers: Sequence[Address], context: Context, listener: CopyPublisher) -> Session:
        return Session(context, self.settings.session, servers, listener)

    def _limits(self) -> PublisherConfig:
        """A slot of a datastore has one reader at a time."""
        config = self.settings.publisher
        return msgspec.structs.replace(config, caravans_max=1) if self._one_reader else config

    def tell(self, request: PublisherRequest) -> None:
        self.driver.tell(FIRST_MACHINE_CHANNEL, request)

    def _deliver(self, item: PublisherItem) -> None:
        match item:
            case ReadLog():
                self.readers.read(item)
            case CloseLog():
                self.readers.close_one(item.caravan)
            case Locate():
                self.readers.locate(item)
            case Measure():
                self.readers.measure()
            case Settled():
                self.readers.acknowledge(item.upto)
            case _:
                assert_never(item)

    # --- peers --------------------------------------------------------------------------------------

    def _book(self, name: str) -> Url | None:
        """Subscribers dial us; nobody else is dialled but the coordinator."""
        settings = self.settings.coordinator
        return coordinator_members(settings.name, settings.url).get(Address(name)) if settings.url else None

    def _compression(self, name: str) -> str:
        link = None if self.machine is None else self.machine.links.get(Address(name))
        settings = None if link is None else self.settings.applications.get(link.served.name)
        return "" if settings is None else settings.codec

    # --- what people are told -----------------------------------------------------------------------

    def healthy(self) -> str | None:
        return self.failure or super().healthy()

    def status(self) -> Mapping[str, object]:
        common = {
            "version": __version__,
            "url": self.url,
            "data": str(self.data),
            "pid": os.getpid(),
            "log": self.source,
        }
        if self.machine is None:
            return common | {"log_problem": self.waits}
        problems = {
            "log_problem": self.readers.problem,
            "coordinator_problem": self._coordination.problem,
        }
        return common | problems | publisher_status(self.machine, wall_clock_us(), monotonic_us(), self.rates)
