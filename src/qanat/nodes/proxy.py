"""A replica of a region's proxy: one process with its place in the chain, its logs, and clients on a socket."""

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from qanat import __version__
from qanat.coordinate import Session
from qanat.events.batch import stream_id
from qanat.kernel import Address, Context
from qanat.log import LogConfig
from qanat.log.disk import OsDisk
from qanat.nodes.chained_stream import ChainedStream
from qanat.nodes.folder_lock import lock_folder
from qanat.nodes.log_history import LogHistory
from qanat.nodes.mesh_proxy import MESH, MeshPart
from qanat.nodes.region_machine import HostedReplica
from qanat.nodes.region_settings import ProxySettings
from qanat.nodes.region_status import chain_status, export, stream_status
from qanat.nodes.region_streams import RegionStreams
from qanat.nodes.stream_service import StreamService
from qanat.nodes.syncing import Syncing
from qanat.nodes.tickets import Tickets
from qanat.protocols.chain import Answered, Fence, Leave, Placed, Refused, Reset, Stable, Wanted, WasReset
from qanat.protocols.chain.records import compact
from qanat.protocols.proxy_level import Unserved
from qanat.protocols.region import Peers, RegionConfig, StreamsChanged
from qanat.runtime.config import Loaded
from qanat.runtime.driver import Driver, wall_clock_us
from qanat.runtime.members import with_members
from qanat.runtime.node import Node
from qanat.runtime.service import FIRST_MACHINE_CHANNEL, STREAMS_CHANNEL
from qanat.runtime.url import Url, parse_url
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
        self.machine: HostedReplica | None = None
        self.streams: RegionStreams
        self.service: StreamService
        self.driver: Driver
        self.tickets: Tickets
        self._history: LogHistory
        self._syncing: Syncing
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="log")
        self._url: Url | None = None
        self._lock: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._served_s = 0.0

    @property
    def url(self) -> str:
        return "" if self._url is None else str(self._url)

    # --- life ---------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Recovers the logs, then listens; the machine finds its place by itself."""
        settings = self.settings
        self._lock = lock_folder(self.data)
        self._loop = asyncio.get_running_loop()
        self._history = LogHistory(OsDisk(), str(self.data / "streams"), self._config_of, self._wants_sync)
        self._syncing = Syncing(self._pool, self._history.logs.get, self._tell, self._disk_failed)
        self.tickets = Tickets(self._request, settings.chain.tickets_max)
        self.streams = RegionStreams(settings.region.name, self._history, self.tickets)
        self.streams.configure(settings.streams)
        for stream in self.streams.streams.values():
            for note in stream.log.recovery_notes:
                log.warning("recovered", extra={"stream": stream.name, "note": note})
        self.service = StreamService(self.streams)
        self.service.tell_status, self.service.tell_place = self._whole_status, self._place
        self.service.tell_stream = self._stream_status
        self.driver = Driver(
            self.identity,
            with_members(self._book),
            folder=self.data / "journals",
            settings=settings.transport,
            traffic=self.traffic,
            on_failure=self._machine_failed,
        )
        self.driver.services[STREAMS_CHANNEL] = self.service
        self.driver.add(
            FIRST_MACHINE_CHANNEL, "region", self._make_machine, self._on_delivered, compact=compact
        )
        self.mesh = MeshPart(self.streams.all.get, settings.mesh, settings.views, serves=False)
        self.mesh.add_to(self.driver)
        self.mesh.export(self.metrics, lambda stream: self.streams.all[stream].name)
        export(self.metrics, lambda: self.streams.streams, lambda: self.machine)
        self._url = await self.driver.start(*parse_url(settings.node.listen))
        log.info("listening", extra={"url": self.url, "data": str(self.data), "region": settings.region.name})
        self._tasks = [asyncio.create_task(self._collect()), asyncio.create_task(self._look())]
        gc.freeze()  # what is here now stays: the collector need not look at it again and again

    async def on_stop(self) -> None:
        """Takes nothing new, answers what it can, leaves the chain to the others, says goodbye."""
        self.service.stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        deadline = self._loop.time() + 1.0
        while len(self.tickets) and not self.failure and self._loop.time() < deadline:
            await asyncio.sleep(0.005)
        self._tell(Leave())  # or the chain would stand still until the session has timed out
        await self.driver.stop()
        await self._syncing.close()
        for stream in self.streams.all.values():
            stream.stop_delivery()
        await asyncio.to_thread(self._pool.shutdown)
        await asyncio.to_thread(self._history.close)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def fail(self, reason: str) -> None:
        """Leaves the chain for good: the others go on without it, and whoever runs it may start it again."""
        if not self.failure:
            self.failure = reason
            log.error("leaving the chain", extra={"node": self.identity.name, "reason": reason})
            self.stop()

    def on_reload(self, applied: list[str]) -> None:
        if "streams" in applied:
            for name in self.streams.configure(self.settings.streams):
                log.warning("how the stream is kept changes with a restart", extra={"stream": name})
            self._tell(StreamsChanged(self.streams.owners))
        if "peers" in applied:
            self._tell(Peers(self._remote()))
        if "region.replicas" in applied:
            self._tell(Wanted(self.settings.region.replicas))
        if self.driver.listener is not None:
            self.driver.listener.reload(self.settings.transport)

    # --- the machine --------------------------------------------------------------------------------

    def _make_machine(self, context: Context) -> HostedReplica:
        settings = self.settings
        session, coordinator = settings.session, Address(settings.coordinator.name)
        chain = msgspec.structs.replace(settings.chain, replicas=settings.region.replicas)
        self.machine = HostedReplica(
            context,
            RegionConfig(chain, settings.proxy_level),
            self._history,
            lambda context, listener: Session(context, session, coordinator, listener),
            region=settings.region.name,
            owners=self.streams.owners,
            remote=self._remote(),
            folder=f"/chains/{settings.region.name}",
            wary_us=session.outlasts_us(round(session.timeout_ms * 1000)),
        )
        return self.machine

    def _remote(self) -> tuple[Address, ...]:
        ours = f"{self.settings.region.name}/"
        return tuple(Address(name) for name in sorted(self.settings.peers) if not name.startswith(ours))

    def _book(self, name: str) -> Url | None:
        if name == self.settings.coordinator.name:
            return parse_url(self.settings.coordinator.url)
        peer = self.settings.peers.get(name)
        return None if peer is None else parse_url(peer.url)

    def _compression(self, name: str) -> str:
        peer = self.settings.peers.get(name)
        return "" if peer is None else peer.compression

    def _config_of(self, stream: int) -> LogConfig:
        for name, settings in self.settings.streams.items():
            if stream_id(name) == stream:
                return settings
        return LogConfig()

    def _request(self, request: object) -> None:
        self.driver.request(FIRST_MACHINE_CHANNEL, request)

    def _tell(self, news: object) -> None:
        self.driver.tell(FIRST_MACHINE_CHANNEL, news)

    def _wants_sync(self, stream: int) -> None:
        self._syncing.wants(stream)

    def _machine_failed(self, machine: str, reason: str) -> None:
        """Without its mesh a replica still serves: clients then come to it directly."""
        if machine != MESH:
            self.fail(f"the machine {machine!r} stopped: {reason}")

    def _disk_failed(self, error: BaseException) -> None:
        self.fail(f"the disk failed under a sync: {error}")

    def _on_delivered(self, item: object) -> None:
        """What the machine says; it is in the middle of something, so it is answered later."""
        match item:
            case Answered() | Refused():
                self.tickets.on_outcome(item)
            case Stable():
                stream = self.streams.all.get(item.stream)
                if stream is not None:
                    stream.on_stable(item.upto)
                    self._look_now()
            case Placed():
                self.streams.on_placed(item)
                self._look_now()
                log.info("placed", extra={"epoch": item.epoch, "head": item.head, "tail": item.tail})
            case Fence():
                self._loop.call_soon(self._tell, item)
            case Reset():
                self._loop.create_task(self._reset(item.stream))
            case Unserved():
                name = next((s.name for s in self.streams.all.values() if s.log.stream == item.stream), "?")
                log.error(
                    "a source no longer has what comes next",
                    extra={"stream": name, "first": item.first, "last": item.last},
                )
            case _:
                log.warning("the machine said what nobody here expects", extra={"what": repr(item)})

    async def _reset(self, number: int) -> None:
        """Its history is not the chain's: away with it, then anew."""
        stream = self.streams.all.get(number)
        log.warning("stream begins anew", extra={"stream": number if stream is None else stream.name})
        detached = self._history.detach(number)
        try:
            await self._loop.run_in_executor(self._pool, self._history.wipe, number, detached)
        except Exception as error:
            self.fail(f"stream {number:#x} could not be wiped: {error}")
            return
        if stream is not None:
            stream.replace_log(self._history.open(number))
        self._tell(WasReset(number))

    # --- care ---------------------------------------------------------------------------------------

    def _look_now(self) -> None:
        """A tail shows while it may serve. It may not for a moment now and then, when its lease is late or it hands over;
        only when that lasts are listeners told to look elsewhere."""
        machine, now_s = self.machine, self._loop.time()
        if machine is not None and machine.chain.serves(wall_clock_us()):
            self._served_s = now_s
            self.streams.show(True)
        elif now_s - self._served_s > self.settings.session.timeout_ms / 1000:
            self.streams.show(False)
        self.mesh.serve(self.streams.shows)

    async def _look(self) -> None:
        while True:
            self._look_now()
            await asyncio.sleep(_LOOK_MS / 1000)

    async def _collect(self) -> None:
        """Garbage collection, in a thread; and for silent streams of this region's, the event that begins it."""
        while True:
            await asyncio.sleep(self.settings.region.collect_ms / 1000)
            for stream in list(self.streams.all.values()):
                try:
                    if stream.log.stream in self.streams.by_id:
                        stream.expire(time.time_ns() // 1000)
                    settled = 0 if self.machine is None else self.machine.chain.settled(stream.log.stream)
                    await self._loop.run_in_executor(self._pool, partial(stream.log.collect, settled=settled))
                except Exception as error:
                    log.exception("collection failed", extra={"stream": stream.name, "reason": str(error)})

    # --- what people and clients are told -----------------------------------------------------------

    def healthy(self) -> str | None:
        return self.failure or super().healthy()

    def _place(self) -> Place:
        settings, place = self.settings, self.streams.place
        ours = f"{settings.region.name}/"
        urls = {name: str(parse_url(p.url)) for name, p in settings.peers.items() if name.startswith(ours)}
        return Place(
            region=settings.region.name,
            epoch=place.epoch,
            me=self.identity.name,
            head=place.head,
            tail=place.tail,
            replicas={self.identity.name: self.url, **urls},
            streams={name: stream.owner for name, stream in self.streams.streams.items()},
        )

    def status(self) -> Mapping[str, object]:
        common = {
            "version": __version__,
            "url": self.url,
            "data": str(self.data),
            "pid": os.getpid(),
            "region": self.settings.region.name,
        }
        if self._url is None:  # still recovering its logs
            return common
        streams = sorted(self.streams.streams.items())
        return common | {
            "chain": chain_status(self.machine, self.streams.place, wall_clock_us()),
            "refused_batches": self.service.refused_batches,
            "streams": [self._stream_status(stream) for _, stream in streams],
        }

    def _stream_status(self, stream: ChainedStream) -> dict[str, object]:
        return stream_status(stream, self.machine) | {"mesh": self.mesh.status(stream.log.stream)}
