"""The monitor of one machine: decides from a folder of settings' files which publishers run here, and sees to
it (Wormhole, section 5).

Whoever has a way to bring files to machines needs nothing else to deploy publishers, and nothing outside of
the machine to keep them running.
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

import msgspec

from qanat.events.errors import LocalError
from qanat.events.kept import Damaged, Kept
from qanat.operate.child import Child
from qanat.operate.process_id import ProcessId
from qanat.publisher.settings import PublisherSettings
from qanat.runtime.config import load, reload
from qanat.runtime.folder_lock import lock_folder

log = logging.getLogger("qanat.keeper")

_STOP_S = 15.0
LOGS = "logs"
PROCESSES = "processes.json"
"""Beside the logs: whom it started, so that the next keeper can end what this one left behind, should it be
killed."""


class _Publisher(NamedTuple):
    """A publisher that runs, as the settings say with which it was told to."""

    child: Child
    settings: PublisherSettings


class Keeper:
    """`look` makes what runs what the folder says. A file that cannot be read changes nothing, and is told of
    in `problems`."""

    def __init__(self, folder: Path, host: str = "") -> None:
        self._folder, self._host = folder, host or socket.gethostname()
        self._kept: dict[str, _Publisher] = {}
        self._processes = Kept(folder / LOGS / PROCESSES, mode=0o600)
        self._stopping: dict[asyncio.Task[None], Child] = {}
        self._died: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    async def run(self, every_s: float, stop: asyncio.Event, told: Callable[[], None]) -> None:
        """Until it is told to stop; then all that it started is stopped."""
        held = lock_folder(self._folder / LOGS, "is in use by another `publisher keep` of this folder")
        try:
            await self._end_left_behind()
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
            os.close(held)

    async def _end_left_behind(self) -> None:
        try:
            data = self._processes.mend()
            left = msgspec.json.decode(data or b"[]", type=list[tuple[str, ProcessId]])
        except msgspec.MsgspecError as error:
            raise Damaged(f"{self._processes.path} is damaged ({error}): restore it from a copy") from None
        alive = [(name, process) for name, process in left if process.is_alive()]
        for name, process in alive:
            log.warning(
                "ending what a keeper before left behind", extra={"publisher": name, "pid": process.pid}
            )
        await asyncio.gather(*(asyncio.to_thread(process.end, _STOP_S) for _, process in alive))

    def _remember(self) -> None:
        """Those that are being stopped as well: they are not over yet."""
        children = [*(kept.child for kept in self._kept.values()), *self._stopping.values()]
        found = [(child.name, child.process) for child in children if child.process is not None]
        try:
            self._processes.write(msgspec.json.encode(found))
        except OSError as error:  # a full disk is no reason to watch over nobody
            log.error("cannot write who runs", extra={"reason": str(error)})

    def look(self) -> bool:
        """Whether there is anything new: to be told of, also if nothing was done."""
        before = (dict(self._kept), self.problems, self._died)
        self._follow()
        self._died = {name: why for name, kept in self._kept.items() if (why := self._why_died(kept.child))}
        return before != (self._kept, self.problems, self._died)

    def _why_died(self, child: Child) -> str:
        """Of one that ended by itself, until it has run for a while again."""
        if child.settled or child.last_end in ("", "exit code 0"):
            return ""
        return f"{child.last_end}: {child.last_words}" if child.last_words else child.last_end

    def _follow(self) -> None:
        wanted: dict[str, PublisherSettings] = {}
        self.problems = {}
        if not self._folder.is_dir():
            self.problems[str(self._folder)] = "it is no folder"
            return
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
            self._kept[name] = _Publisher(kept.child, settings)

    def _start(self, name: str, settings: PublisherSettings) -> None:
        logs = self._folder / LOGS
        logs.mkdir(exist_ok=True)
        file = self._folder / f"{name}.toml"
        command = [sys.executable, "-m", "qanat", "publisher", "run", str(file), "--quiet"]
        child = Child(name, command, logs / f"{name}.log", os.environ, self._remember)
        child.run()
        self._kept[name] = _Publisher(child, settings)
        log.info("kept", extra={"publisher": name})

    def _end(self, name: str) -> None:
        child = self._kept.pop(name).child
        task = asyncio.get_running_loop().create_task(child.stop(_STOP_S))
        self._stopping[task] = child
        task.add_done_callback(self._stopping.pop)

    def status(self) -> dict[str, Any]:
        return {
            "host": self._host,
            "publishers": {
                name: {
                    "state": kept.child.state,
                    "pid": None if kept.child.process is None else kept.child.process.pid,
                    "starts": kept.child.starts,
                    "last_end": kept.child.last_end,
                    "last_words": kept.child.last_words,
                }
                for name, kept in self._kept.items()
            },
            "died": self._died,
            "problems": self.problems,
        }
