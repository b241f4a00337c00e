"""The skeleton of a process: start, serve, reload on SIGHUP, stop on SIGTERM or SIGINT."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from qanat.events.errors import LocalError, QanatError
from qanat.runtime import descriptors, logs
from qanat.runtime.admin import Admin
from qanat.runtime.budget import MemoryBudget
from qanat.runtime.config import Loaded, reload
from qanat.runtime.connection_memory import account_connections
from qanat.runtime.driver import Driver
from qanat.runtime.folder_lock import IN_USE, is_locked
from qanat.runtime.links import Book
from qanat.runtime.metrics import Metrics
from qanat.runtime.node_settings import Settings
from qanat.runtime.traffic import Traffic
from qanat.wire.control import Identity

log = logging.getLogger("qanat.node")

_S = TypeVar("_S", bound=Settings)


class Node(Generic[_S]):
    """What every process of the house has; a kind of node derives from it and fills in the four hooks.

    `await node.serve()` starts, waits for a signal or `node.stop()`, then stops: `on_stop` has
    `node.stop_ms` to drain and flush. It returns True when that went well.
    """

    def __init__(self, loaded: Callable[[], Loaded[_S]], *, role: str = "node") -> None:
        """`loaded` reads the configuration; it is called now, and again on each SIGHUP."""
        self._load = loaded
        self.settings: _S = loaded().settings
        self.identity = Identity(
            name=self.settings.node.name,
            incarnation=time.time_ns() // 1000,
            cluster=self.settings.node.cluster,
            role=role,
        )
        self.metrics = Metrics()
        self.memory = MemoryBudget(self.settings.memory.budget_bytes, self.metrics)
        self.traffic = Traffic(self.metrics, budget=self.memory)
        account_connections(self.memory, self.traffic.live)
        self.admin = Admin(self.metrics, self.whole_status, self.healthy)
        self.started_s = time.monotonic()
        self._stopping = asyncio.Event()
        self._ready = False
        self._driver: Driver | None = None
        self._reloads = self.metrics.counters("config_reloads", "Configurations read again.", ("result",))

    # ------------------------------------------------------------------ for the kind of node

    async def on_start(self) -> None:
        """Opens what is on disk, then listens. When it returns the node is ready."""

    async def on_stop(self) -> None:
        """Takes nothing new, sends what is queued, flushes, closes."""

    def on_reload(self, applied: list[str]) -> None:
        """`self.settings` is new; `applied` names the keys that changed."""

    def status(self) -> Mapping[str, object]:
        """What `/status` shows beside the common part."""
        return {}

    def make_driver(self, book: Book, **options: Any) -> Driver:
        """The driver of this node's machines and connections; it follows what the configuration says of the
        transport."""
        self._driver = Driver(
            self.identity, book, settings=self.settings.transport, traffic=self.traffic, **options
        )
        self._driver.account(self.memory)
        return self._driver

    def healthy(self) -> str | None:
        """Why the node cannot serve, or None."""
        if self._stopping.is_set():
            return "stopping"
        for machine, reason in {} if self._driver is None else self._driver.failed().items():
            return f"the machine {machine!r} stopped: {reason}"
        return self.memory.trouble() or descriptors.shortage() if self._ready else "starting"

    # ------------------------------------------------------------------ for who runs it

    def stop(self) -> None:
        """Asks for a graceful stop; `serve` returns when it is done."""
        self._stopping.set()

    async def serve(self, on_ready: Callable[[], None] | None = None) -> bool:
        logs.set_up(self.settings.logging.level, self.settings.logging.format)
        descriptors.raise_limit()
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self._reload}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            await self._start()
            if on_ready is not None:
                on_ready()
            await self._stopping.wait()
            return await self._finish()
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    async def _start(self) -> None:
        self.memory.start()
        try:
            if self.settings.admin.enabled:
                await self._serve_http()
            await self.on_start()
        except BaseException:
            self.memory.stop()
            await self.admin.close()
            raise
        self._ready = True
        log.info("ready", extra={"node": self.identity.name, "admin_port": self.admin.port})

    async def _serve_http(self) -> None:
        """A port that is taken is most often that of the same node, started twice: then its folder is what to
        tell."""
        try:
            await self.admin.start(self.settings.admin)
        except LocalError:
            folder = Path(self.settings.node.data).absolute()
            if is_locked(folder):
                raise LocalError(f"{folder} {IN_USE}") from None
            raise

    async def _finish(self) -> bool:
        log.info("stopping", extra={"node": self.identity.name})
        clean = await _within(self.on_stop(), self.settings.node.stop_ms / 1000)
        self.memory.stop()
        await self.admin.close()
        log.info("stopped", extra={"node": self.identity.name, "clean": clean})
        return clean

    def _reload(self) -> None:
        try:
            new = self._load().settings
        except LocalError as error:
            self._reloads.labels("refused").value += 1
            log.error("configuration not reloaded", extra={"reason": str(error)})
            return
        result = reload(self.settings, new)
        self.settings = result.settings
        self._reloads.labels("ok").value += 1
        logs.set_up(self.settings.logging.level, self.settings.logging.format)
        log.info("configuration reloaded", extra={"changed": ",".join(result.applied) or "nothing"})
        if result.need_restart:
            log.warning("some changes need a restart", extra={"keys": ",".join(result.need_restart)})
        self.memory.reload(self.settings.memory.budget_bytes)
        if self._driver is not None:
            self._driver.reload(self.settings.transport)
        try:
            self.on_reload(result.applied)
        except QanatError as error:
            log.error("a changed setting was not taken", extra={"reason": str(error)})

    def whole_status(self) -> Mapping[str, object]:
        """What `/status` shows."""
        return {
            "name": self.identity.name,
            "cluster": self.identity.cluster,
            "role": self.identity.role,
            "incarnation": self.identity.incarnation,
            "uptime_s": round(time.monotonic() - self.started_s, 3),
            "state": self.healthy() or "ready",
            "connections": len(self.traffic.live),
            "descriptors": {"in_use": descriptors.lowest_free(), "limit": descriptors.limit()},
            "memory": self.memory.status(),
            "received_bytes": self.traffic.received_bytes,
            "sent_bytes": self.traffic.sent_bytes,
            "repaired": [] if self._driver is None else list(self._driver.repaired),
            "machines": {} if self._driver is None else self._driver.machines(),
            **self.status(),
        }


async def _within(work: Awaitable[None], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        log.warning("the stop took too long and was cut short", extra={"limit_s": seconds})
        return False
    except Exception:
        log.exception("the stop failed")
        return False
    return True
