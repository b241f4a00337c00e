"""The monitor of one machine: decides from a folder of settings' files which publishers run here, and sees to it (Wormhole, section 5).

Whoever has a way to bring files to machines needs nothing else to deploy publishers, and nothing outside of the machine to keep them running.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from qanat.events.errors import LocalError
from qanat.nodes.deployment.child import Child
from qanat.nodes.publisher_settings import PublisherSettings
from qanat.runtime.config import load, reload

log = logging.getLogger("qanat.keeper")

_STOP_S = 15.0
LOGS = "logs"


class Kept(NamedTuple):
    """A publisher that runs, as the settings say with which it was told to."""

    child: Child
    settings: PublisherSettings


class Keeper:
    """`look` makes what runs what the folder says. A file that cannot be read changes nothing, and is told of in `problems`."""

    def __init__(self, folder: Path, host: str = "") -> None:
        self._folder, self._host = folder, host or socket.gethostname()
        self._kept: dict[str, Kept] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self.problems: dict[str, str] = {}

    async def run(self, every_s: float, stop: asyncio.Event, told: Callable[[], None]) -> None:
        """Until it is told to stop; then all that it started is stopped."""
        try:
            while not stop.is_set():
                if self.look():
                    told()
                try:
                    async with asyncio.timeout(every_s):
                        await stop.wait()
                except TimeoutError:
                    pass
        finally:
            for name in list(self._kept):
                self._end(name)
            await asyncio.gather(*self._stopping)

    def look(self) -> bool:
        """Whether anything was changed."""
        before = (dict(self._kept), dict(self.problems))
        wanted: dict[str, PublisherSettings] = {}
        self.problems = {}
        if not self._folder.is_dir():
            self.problems[str(self._folder)] = "it is no folder"
            return before != (self._kept, self.problems)
        for path in sorted(self._folder.glob("*.toml")):
            try:
                settings = load(PublisherSettings, file=path, environment=os.environ).settings
            except LocalError as error:
                self.problems[path.stem] = str(error)
                if path.stem in self._kept:  # it goes on as it was
                    wanted[path.stem] = self._kept[path.stem].settings
                continue
            if self._runs_here(settings):
                wanted[path.stem] = settings
        for name in [name for name in self._kept if name not in wanted]:
            self._end(name)
        for name, settings in wanted.items():
            self._keep(name, settings)
        return before != (self._kept, self.problems)

    def _runs_here(self, settings: PublisherSettings) -> bool:
        monitor = settings.monitor
        return monitor.enabled and (not monitor.hosts or self._host in monitor.hosts)

    def _keep(self, name: str, settings: PublisherSettings) -> None:
        kept = self._kept.get(name)
        if kept is None:
            self._start(name, settings)
        elif settings != kept.settings:
            change = reload(kept.settings, settings)
            if change.need_restart:
                kept.child.restart()
            else:
                kept.child.signal(signal.SIGHUP)
            log.info("changed", extra={"publisher": name, "restart": ",".join(change.need_restart)})
            self._kept[name] = Kept(kept.child, settings)

    def _start(self, name: str, settings: PublisherSettings) -> None:
        logs = self._folder / LOGS
        logs.mkdir(exist_ok=True)
        file = self._folder / f"{name}.toml"
        command = [sys.executable, "-m", "qanat", "publisher", "run", str(file), "--quiet"]
        child = Child(name, command, logs / f"{name}.log", os.environ, lambda: None)
        child.run()
        self._kept[name] = Kept(child, settings)
        log.info("kept", extra={"publisher": name})

    def _end(self, name: str) -> None:
        child = self._kept.pop(name).child
        task = asyncio.get_running_loop().create_task(child.stop(_STOP_S))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def status(self) -> dict[str, Any]:
        return {
            "host": self._host,
            "publishers": {
                name: {
                    "state": kept.child.state,
                    "pid": None if kept.child.process is None else kept.child.process.pid,
                    "starts": kept.child.starts,
                    "last_end": kept.child.last_end,
                }
                for name, kept in self._kept.items()
            },
            "problems": self.problems,
        }
