"""A replica of a region's proxy: one process with its place in the chain, its logs, and clients on a
socket."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from qanat import __version__
from qanat.events.batch import stream_id
from qanat.events.errors import LocalError
from qanat.kernel import Address
from qanat.log.errors import CorruptLog
from qanat.protocols.chain import GiveUp
from qanat.replica.chained_stream import ChainedStream
from qanat.replica.coordination import Coordination, coordinator_members
from qanat.replica.damage import DAMAGED, JOURNALS, DamagedDisk, SetAside, sentence
from qanat.replica.host import ReplicaHost
from qanat.replica.rejoining import begin_anew
from qanat.replica.settings import ProxySettings
from qanat.replica.status import chain_status, export, shortage, stream_status
from qanat.runtime.clocks import monotonic_us
from qanat.runtime.config import Loaded
from qanat.runtime.driver import Driver
from qanat.runtime.folder_lock import lock_folder
from qanat.runtime.journal import CorruptJournal
from qanat.runtime.members import Heard
from qanat.runtime.node import Node
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.runtime.url import Url, parse_url
from qanat.serving.caravan_admin import CaravanAdmin
from qanat.serving.disk_room import DiskRoom
from qanat.serving.mesh_proxy import MESH, MeshPart
from qanat.serving.stream_memory import account_streams
from qanat.serving.stream_service import StreamService
from qanat.wire.streams import Place

log = logging.getLogger("qanat.proxy")

_WORKERS = 4
"""Threads for syncs, collections and wiping: more than one, so that a slow collection never delays a sync."""
_LOOK_MS = 250
"""How often to look whether the tail may still serve."""


class ProxyNode(Node[ProxySettings]):
    """`await node.serve()` runs it to its end; `on_start` and `on_stop` alone embed it in another process."""

    def __init__(self, loaded: Callable[[], Loaded[ProxySettings]]) -> None:
        super().__init__(loaded)
        self.data = Path(self.settings.node.data).absolute()
        self.failure = ""
        """Why this process had to leave the chain, if it had."""
        self.host: ReplicaHost
        self.service: StreamService
        self.driver: Driver
        self.mesh: MeshPart
        self.caravans = CaravanAdmin(
            self.admin, lambda: self.host.streams.caravans, lambda: self.host.streams.streams
        )
        account_streams(
            self.memory,
            lambda: [] if self._url is None else [stream.log for stream in self.host.streams.all.values()],
        )
        self.memory.add("publishes_waiting", lambda: 0 if self._url is None else self.host.tickets.bytes)
        self.admin.actions["/rebuild"] = self._rebuild
        self.room = DiskRoom(
            self.identity.name, self.data, "its readers read on, and publishes wait or are refused"
        )
        self._coordination: Coordination
        self._url: Url | None = None
        self._lock: int | None = None
        self._damaged = ""
        self._set_aside: list[SetAside] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        return "" if self._url is None else str(self._url)

    @property
    def advertised(self) -> str:
        """Where clients are told to come."""
        return str(parse_url(self.settings.node.advertise)) if self.settings.node.advertise else self.url

    # --- life ---------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Recovers the logs, then listens; the machine finds its place by itself."""
        self._lock = lock_folder(self.data)
        disk = DamagedDisk(self.data)
        self._damaged = disk.marked()
        if not self._damaged:
            try:
                await self._begin()
            except DAMAGED as error:
                self._damaged = sentence(error, self._stream_at(error))
        if self._damaged:
            await begin_anew(self.settings, self.identity, disk, self._damaged, self._stopping.is_set)
            self._damaged = ""
            await self._begin()
        self._set_aside = disk.lying()
        self.caravans.open(self.data, self.settings.admin.host)
        self.mesh.export(self.metrics, lambda stream: self.host.streams.all[stream].name)
        export(self.metrics, lambda: self.host.streams.streams, lambda: self.host.machine)
        self._tasks = [asyncio.create_task(self._collect()), asyncio.create_task(self._look())]
        gc.freeze()  # what is here now stays: the collector need not look at it again and again

    def _stream_at(self, error: LocalError) -> str:
        """The stream whose log lies where the damage is."""
        parts = Path(error.file).parts if isinstance(error, CorruptLog) else ()
        return next((name for name in self.settings.streams if f"{stream_id(name):016x}" in parts), "")

    async def _begin(self) -> None:
        settings = self.settings
        pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="log")
        self.host = ReplicaHost(lambda: self.settings, self.data, pool, self.fail, self._shown, self.room)
        streams = self.host.streams
        self.service = StreamService(streams)
        self.service.tell_status, self.service.tell_place = self.whole_status, self._place
        self.service.tell_stream = self._stream_status
        self.driver = self.make_driver(
            Heard(self._book),
            folder=self.data / JOURNALS,
            on_failure=self._machine_failed,
            compression=self._compression,
        )
        self.driver.services[STREAMS_CHANNEL] = self.service
        self.driver.on_room = self.room.journal
        try:
            self.host.add_to(self.driver, self.data / JOURNALS)
        except CorruptJournal:
            await self.host.close()
            raise
        coordinator = settings.coordinator
        self._coordination = Coordination(
            self.driver, coordinator.name, coordinator.url, settings.session, settings.zookeeper
        )
        self.mesh = MeshPart(streams.all.get, settings.mesh, settings.views, serves=False)
        self.mesh.add_to(self.driver)
        try:
            self._url = await self.driver.start(*parse_url(settings.node.listen))
        except CorruptJournal:
            await self.driver.stop()
            await self._coordination.close()
            await self.host.close()
            raise
        if self.settings is not settings:  # it was told to reload before there was anybody to tell
            self.host.reload(["streams", "peers", "region.replicas"])
        log.info("listening", extra={"url": self.url, "data": str(self.data), "region": settings.region.name})

    async def on_stop(self) -> None:
        """Takes nothing new, answers what it can, leaves the chain to the others, says goodbye."""
        self.service.stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 1.0
        while len(self.host.tickets) and not self.failure and loop.time() < deadline:
            await asyncio.sleep(0.005)
        self.host.leave()
        await self.driver.stop()
        await self._coordination.close()
        await self.host.close()
        self.caravans.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def fail(self, reason: str) -> None:
        """Leaves the chain for good: the others go on without it, and whoever runs it may start it again."""
        if not self.failure:
            self.failure = reason
            log.error("leaving the chain", extra={"node": self.identity.name, "reason": reason})
            self.stop()

    def _machine_failed(self, machine: str, reason: str) -> None:
        """Without its mesh a replica still serves: clients then come to it directly."""
        if machine != MESH:
            self.fail(self.host.damaged or f"the machine {machine!r} stopped: {reason}")

    def on_reload(self, applied: list[str]) -> None:
        if self._url is None:  # `on_start` looks again
            return
        self.host.reload(applied)

    # --- peers --------------------------------------------------------------------------------------

    def _book(self, name: str) -> Url | None:
        settings = self.settings.coordinator
        coordinator = coordinator_members(settings.name, settings.url).get(Address(name))
        if coordinator is not None:
            return coordinator
        peer = self.settings.peers.get(name)
        return None if peer is None else parse_url(peer.url)

    def _compression(self, name: str) -> str:
        peer = self.settings.peers.get(name)
        return "" if peer is None else peer.compression

    # --- care ---------------------------------------------------------------------------------------

    def _shown(self, shows: bool) -> None:
        self.mesh.serve(shows)

    async def _look(self) -> None:
        while True:
            self.host.look()
            await asyncio.sleep(_LOOK_MS / 1000)

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(self.settings.region.collect_ms / 1000)
            await self.host.collect()

    # --- what people and clients are told -----------------------------------------------------------

    def healthy(self) -> str | None:
        waits = "" if self._url is None else self.host.waiting.why
        return self.failure or self._damaged or waits or super().healthy() or self.room.sentence or None

    def _rebuild(self, asked: Mapping[str, Any]) -> object:
        """`without`: replicas that will never come back. The chain goes on from what the others know, if
        it waits for these."""
        without = tuple(str(name) for name in asked.get("without", ()))
        machine = None if self._url is None else self.host.machine
        waits = None if machine is None else machine.manager.waits
        if waits is None:
            raise LocalError(f"the chain of {self.settings.region.name} waits for nobody")
        if self.identity.name in without and self.identity.name not in waits.emptied:
            raise LocalError(f"{self.identity.name} is here, so it is not gone for ever")
        self.host.tell(GiveUp(without))
        return {"without": list(without)}

    def _place(self) -> Place:
        settings, place = self.settings, self.host.streams.place
        ours = f"{settings.region.name}/"
        urls = {name: str(parse_url(p.url)) for name, p in settings.peers.items() if name.startswith(ours)}
        return Place(
            region=settings.region.name,
            epoch=place.epoch,
            me=self.identity.name,
            head=place.head,
            tail=place.tail,
            replicas={self.identity.name: self.advertised, **urls},
            streams={name: stream.owner for name, stream in self.host.streams.streams.items()},
            waits=self.host.why_publishes_wait() or self.room.sentence,
        )

    def status(self) -> Mapping[str, object]:
        common = {
            "version": __version__,
            "url": self.url,
            "data": str(self.data),
            "pid": os.getpid(),
            "region": self.settings.region.name,
            "damaged": self._damaged,
            "disk_full": self.room.sentence,
            "set_aside": msgspec.to_builtins(self._set_aside),
        }
        if self._url is None:  # still recovering its logs
            return common
        streams = sorted(self.host.streams.streams.items())
        return common | {
            "damaged": self.host.damaged,
            "chain": chain_status(
                self.host.machine,
                self.host.streams.place,
                monotonic_us(),
                self.host.answers(),
                self.host.waiting.at_once,
            ),
            "short": shortage(self.host.machine, self.host.name_of),
            "coordinator_problem": self._coordination.problem,
            "refused_batches": self.service.refused_batches,
            "streams": [self._stream_status(stream) for _, stream in streams],
        }

    def _stream_status(self, stream: ChainedStream) -> dict[str, object]:
        return stream_status(stream, self.host.machine) | {"mesh": self.mesh.status(stream.log.stream)}
