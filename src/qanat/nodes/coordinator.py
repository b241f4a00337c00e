"""The coordinator of a region as a process."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from qanat.coordinate import CoordinatorServer
from qanat.coordinate.messages import TO_CLIENT
from qanat.coordinate.tree import compact
from qanat.kernel import Context
from qanat.nodes.region_settings import CoordinatorSettings
from qanat.runtime.config import Loaded
from qanat.runtime.folder_lock import lock_folder
from qanat.runtime.node import Node
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.runtime.url import Url, parse_url

log = logging.getLogger("qanat.coordinator")


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
        self.driver = self.make_driver(
            lambda name: None,
            folder=self.data / "journals",
            on_failure=lambda machine, reason: self._fail(reason),
        )
        self.memory.add("tree", lambda: 0 if self.machine is None else self.machine.tree.held_bytes)
        self.memory.add("watches", lambda: 0 if self.machine is None else self.machine.watched_bytes)
        self.driver.add(FIRST_MACHINE_CHANNEL, "coordinator", self._make_machine, compact=compact)

    @property
    def url(self) -> str:
        return "" if self._url is None else str(self._url)

    async def on_start(self) -> None:
        self._lock = lock_folder(self.data)
        self._url = await self.driver.start(*parse_url(self.settings.node.listen))
        log.info("listening", extra={"url": self.url, "data": str(self.data)})

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
        return self.failure or super().healthy()

    def status(self) -> Mapping[str, object]:
        tree = None if self.machine is None else self.machine.tree
        return {
            "url": self.url,
            "data": str(self.data),
            "pid": os.getpid(),
            "sessions": 0 if tree is None else len(tree.sessions),
            "nodes": 0 if tree is None else len(tree.nodes),
        }
