"""The stream server of one region: streams on disk, clients on a socket, care in the background."""

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from qanat import __version__
from qanat.runtime.config import Loaded
from qanat.runtime.listener import Listener
from qanat.runtime.members import Heard
from qanat.runtime.node import Node
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.runtime.url import parse_url
from qanat.serving.caravan_admin import CaravanAdmin
from qanat.serving.caravan_settings import CaravanControl
from qanat.serving.hosted_stream import HostedStream
from qanat.serving.mesh_proxy import MeshPart
from qanat.serving.settings import StreamServerSettings
from qanat.serving.stream_memory import account_streams
from qanat.serving.stream_metrics import export_streams
from qanat.serving.stream_registry import StreamRegistry
from qanat.serving.stream_service import StreamService

log = logging.getLogger("qanat.server")

_WORKERS = 4
"""Threads for syncs and collections: more than one, so that a slow collection never delays a sync."""


@contextmanager
def _reported(what: str, stream: str) -> Iterator[None]:
    """The next stream, and the next round, are tended all the same."""
    try:
        yield
    except Exception as error:
        log.exception(what, extra={"stream": stream, "reason": str(error)})


class StreamServer(Node[StreamServerSettings]):
    """`await server.serve()` runs it to its end; `on_start` and `on_stop` alone embed it in another
    process."""

    def __init__(self, loaded: Callable[[], Loaded[StreamServerSettings]]) -> None:
        super().__init__(loaded)
        settings = self.settings
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="log")
        self.registry = StreamRegistry(
            settings.node.data,
            settings.log,
            settings.stream,
            settings.streams.max_streams,
            self._pool,
            CaravanControl(settings.caravans),
            self.memory,
        )
        account_streams(self.memory, lambda: [stream.log for stream in self.registry.streams.values()])
        self.service = StreamService(self.registry)
        self.service.tell_status = self.whole_status
        self.service.tell_place = self._place
        self.mesh = MeshPart(self.registry.by_id.get, settings.mesh, settings.views)
        self.driver = self.make_driver(Heard(lambda _: None))
        self.driver.services[STREAMS_CHANNEL] = self.service
        self.mesh.add_to(self.driver)
        self.mesh.export(self.metrics, lambda stream: self.registry.by_id[stream].name)
        self.service.tell_stream = self._stream_status
        self._data = os.path.abspath(settings.node.data)
        self._collecting: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None
        export_streams(self.metrics, lambda: self.registry.streams)
        self.caravans = CaravanAdmin(
            self.admin, lambda: self.registry.caravans, lambda: self.registry.streams
        )

    @property
    def listener(self) -> Listener | None:
        return self.driver.listener

    @property
    def url(self) -> str:
        return str(self.listener.url) if self.listener is not None else ""

    async def on_start(self) -> None:
        """Recovers the streams, then listens."""
        self.registry.open_all()
        for note in self.registry.notes:
            log.warning("recovered", extra={"note": note})
        self.caravans.open(Path(self._data), self.settings.admin.host)
        await self.driver.start(*parse_url(self.settings.node.listen))
        log.info("listening", extra={"url": self.url, "data": self._data})
        self._collecting = asyncio.create_task(self._collect())
        gc.freeze()  # what is here now stays: the collector need not look at it again and again

    async def on_stop(self) -> None:
        """Takes nothing new, answers what it has, says goodbye."""
        self.service.stopping = True
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)
        for stream in self.registry.streams.values():
            await stream.settle()
        if self.listener is not None:
            await self.listener.close("shutdown", "the server is stopping")
        await self.driver.stop()
        self.caravans.close()
        await self.registry.close()
        await asyncio.to_thread(self._pool.shutdown)

    def on_reload(self, applied: list[str]) -> None:
        self.registry.max_streams = self.settings.streams.max_streams
        self.registry.caravans.say(self.settings.caravans)
        if "stream" in applied:
            self._reloading = asyncio.create_task(self._reload_streams())

    async def _reload_streams(self) -> None:
        with _reported("streams cannot be kept as the file says", "all"):
            for name in await self.registry.reload(self.settings.stream):
                log.warning("some of how the stream is kept changes with a restart", extra={"stream": name})

    async def _collect(self) -> None:
        """Garbage collection, in a thread."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.streams.collect_ms / 1000)
            for stream in list(self.registry.streams.values()):
                if not stream.failed:
                    # Each by itself: on a full disk no event can be published, and collecting is what makes
                    # room.
                    with _reported("expiry failed", stream.name):
                        stream.expire(time.time_ns() // 1000)
                    with _reported("collection failed", stream.name):
                        collect = partial(stream.log.collect, now_us=time.time_ns() // 1000)
                        await loop.run_in_executor(self._pool, collect)

    def healthy(self) -> str | None:
        for stream in self.registry.streams.values():
            if stream.failed:
                return f"stream {stream.name!r} takes no more events: {stream.failed}"
        return super().healthy()

    def status(self) -> Mapping[str, object]:
        return {
            "version": __version__,
            "url": self.url,
            "data": self._data,
            "pid": os.getpid(),
            "refused_batches": self.service.refused_batches,
            "streams": [self._stream_status(stream) for _, stream in sorted(self.registry.streams.items())],
        }

    def _stream_status(self, stream: HostedStream) -> dict[str, object]:
        return stream.status() | {"mesh": self.mesh.status(stream.log.stream)}

    def _place(self) -> dict[str, object]:
        """A server alone is head and tail."""
        me = self.identity.name
        advertise = self.settings.node.advertise
        urls = {me: str(parse_url(advertise)) if advertise else self.url}
        return {"region": "", "epoch": 0, "me": me, "head": me, "tail": me, "replicas": urls, "streams": {}}
