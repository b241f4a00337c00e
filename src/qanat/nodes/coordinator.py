"""The coordinator of a region as a process."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from qanat.coordinate import CoordinatorServer
from qanat.coordinate.messages import TO_CLIENT
from qanat.coordinate.tree import compact
from qanat.kernel import Context
from qanat.nodes.damage import JOURNALS, STATE, DamagedDisk, SetAside
from qanat.nodes.disk_room import DiskRoom
from qanat.nodes.region_settings import CoordinatorSettings
from qanat.runtime.config import Loaded
from qanat.runtime.driver import Driver
from qanat.runtime.folder_lock import lock_folder
from qanat.runtime.journal import CorruptJournal, twin_of
from qanat.runtime.node import Node
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.runtime.url import Url, parse_url

log = logging.getLogger("qanat.coordinator")

MACHINE = "coordinator"
"""Names the machine's journal."""
OTHERS = (b"/publishers", b"/balance")
"""What lies in a coordinator beside chains: names of nodes whose content nobody else keeps."""


class HostedCoordinator(CoordinatorServer):
    """Names its own messages as well, which the codec must know to send them."""

    message_types = (*CoordinatorServer.message_types, *TO_CLIENT)


class CoordinatorNode(Node[CoordinatorSettings]):
    """Its sessions dial it; it dials nobody."""

    def __init__(self, loaded: Callable[[], Loaded[CoordinatorSettings]]) -> None:
        super().__init__(loaded)
        self.data = Path(self.settings.node.data).absolute()
        self.failure = ""
        self.machine: HostedCoordinator | None = None
        self._url: Url | None = None
        self._lock: int | None = None
        self._set_aside: list[SetAside] = []
        self.room = DiskRoom(
            self.identity.name,
            self.data,
            "leases are renewed and changes are written while what was set aside for them lasts",
        )
        self.driver = self._make_driver()
        self.memory.add("tree", lambda: 0 if self.machine is None else self.machine.tree.held_bytes)
        self.memory.add("watches", lambda: 0 if self.machine is None else self.machine.watched_bytes)

    def _make_driver(self) -> Driver:
        driver = self.make_driver(
            lambda name: None,
            folder=self.data / JOURNALS,
            on_failure=lambda machine, reason: self._fail(reason),
        )
        driver.on_room = self.room.journal
        driver.add(FIRST_MACHINE_CHANNEL, MACHINE, self._make_machine, compact=compact, vouched=True)
        return driver

    @property
    def url(self) -> str:
        return "" if self._url is None else str(self._url)

    async def on_start(self) -> None:
        self._lock = lock_folder(self.data)
        disk, listen = DamagedDisk(self.data), parse_url(self.settings.node.listen)
        if marked := disk.marked():
            disk.set_aside(marked)
        try:
            self._url = await self.driver.start(*listen)
        except CorruptJournal as error:
            await self.driver.stop()
            self._forget(disk, error)
            self.driver = self._make_driver()
            self._url = await self.driver.start(*listen)
        self._set_aside = disk.lying()
        log.info("listening", extra={"url": self.url, "data": str(self.data)})

    def _forget(self, disk: DamagedDisk, error: CorruptJournal) -> None:
        """A journal that lost what it once had is no authority: it is set aside, and this coordinator begins empty. The replicas of its
        chains know what it has forgotten. What publishers agree on is nowhere else, so with that it does not start."""
        path = self.data / JOURNALS / f"{MACHINE}.journal"
        left = [file.read_bytes() for file in (path, twin_of(path)) if file.exists()]
        if any(name in data for data in left for name in OTHERS):
            raise CorruptJournal(
                f"{error}; it holds what publishers agreed on, which nobody else has: restore its files from a backup, or give that up by "
                f"moving {', '.join(STATE[:3])} out of {self.data}; then start it again"
            ) from error
        aside = disk.set_aside(str(error))
        log.error("set aside, and begins empty", extra={"reason": aside.why, "folder": aside.folder})

    async def on_stop(self) -> None:
        await self.driver.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_machine(self, context: Context) -> HostedCoordinator:
        self.machine = HostedCoordinator(context, self.settings.server)
        return self.machine

    def _fail(self, reason: str) -> None:
        """Its journal failed, or it has a bug: what it knows is on disk, so it ends and may be started again."""
        self.failure = reason
        self.stop()

    def healthy(self) -> str | None:
        return self.failure or super().healthy() or self.room.sentence or None

    def status(self) -> Mapping[str, object]:
        tree = None if self.machine is None else self.machine.tree
        return {
            "url": self.url,
            "data": str(self.data),
            "disk_full": self.room.sentence,
            "pid": os.getpid(),
            "set_aside": msgspec.to_builtins(self._set_aside),
            "sessions": 0 if tree is None else len(tree.sessions),
            "nodes": 0 if tree is None else len(tree.nodes),
        }
