"""One process that is kept running: started, watched, started again when it dies."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from qanat.operate.process_id import ProcessId

log = logging.getLogger("qanat.supervisor")

_BACKOFF_S, _BACKOFF_LIMIT_S = 0.2, 10.0
"""First pause after a death, doubled with each one that follows soon: a broken disk is not hammered, a crash
is soon over."""
_SETTLED_S = 10.0
"""Who ran for this long had a good start: the next death counts as the first."""
_FORGIVEN_S = 2.0
"""Each of these that it ran makes up for one death before: who dies now and then is back at once, who dies as
it starts is not."""
_LOG_BYTES = 8 << 20
"""A log larger than this is moved aside when its process starts; one older log is kept."""
_LAST_BYTES = 64 << 10
"""How far back from the end of a log its last sentence is looked for."""
_SAYS = "qanat: "
"""How a command's sentence begins."""

State = Literal["running", "waiting", "held", "stopped"]


class Child:
    """Runs `command` again and again until it is stopped; `changed` is called whenever there is another
    process, `prepare` before each."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str],
        changed: Callable[[], None],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.starts = 0
        self.last_end = ""
        self.last_words = ""
        """The sentence with which the last one ended, as commands print it; empty if it said none."""
        self.process: ProcessId | None = None
        self._command, self._log_file, self._environment = command, log_file, environment
        self._changed, self._prepare = changed, prepare
        self._handle: asyncio.subprocess.Process | None = None
        self._starting = False
        self._missed: signal.Signals | None = None
        """What it was told while it was being started: it may be at work already, by what was true before."""
        self._ending = False
        self._held = False
        self._killed = False
        self._pause_s: float | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._began_s = 0.0
        self._log_from = 0

    @property
    def settled(self) -> bool:
        """It runs, and has done so for long enough that what was before is over."""
        return self.process is not None and time.monotonic() - self._began_s > _SETTLED_S

    @property
    def state(self) -> State:
        if self.process is not None:
            return "running"
        if self._task is None or self._task.done():
            return "stopped"
        return "held" if self._held else "waiting"

    @property
    def held(self) -> bool:
        """It stays away until it is told to start."""
        return self._held

    def run(self, *, held: bool = False) -> None:
        self._held = held
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        failures = 0
        await self._while_held()
        while not self._is_over():
            began = time.monotonic()
            await self._once()
            if self._is_over():
                return
            failures = deaths_that_count(failures, time.monotonic() - began, killed=self._killed)
            pause_s = min(_BACKOFF_S * 2 ** (failures - 1), _BACKOFF_LIMIT_S) if failures else 0.0
            if self._pause_s is not None:
                pause_s, self._pause_s, failures = self._pause_s, None, 0
            if not self._held:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
                self._wake.clear()
            await self._while_held()

    async def _while_held(self) -> None:
        while self._held and not self._ending:
            await self._wake.wait()
            self._wake.clear()

    def _is_over(self) -> bool:
        return self._ending

    async def _once(self) -> None:
        """One life of the process."""
        self._starting, self._missed = True, None
        try:
            self._prepare()
            self._handle = await self._spawn()
        except OSError as error:
            self.last_end, self.last_words = f"could not be started: {error.strerror}", ""
            log.error("not started", extra={"node": self.name, "reason": self.last_end})
            return
        finally:
            self._starting = False
        self.starts += 1
        self._began_s = time.monotonic()
        self._wake.clear()  # whoever wanted it to start has what he wanted
        self.process = ProcessId.of(self._handle.pid)
        self._changed()
        log.info("started", extra={"node": self.name, "pid": self.process.pid})
        self._tell_missed()
        code = await self._handle.wait()
        self.process = None
        self._killed = code == -signal.SIGKILL
        self.last_end, self.last_words = _described(code), self._said_last()
        self._changed()
        level = logging.INFO if self._ending else logging.WARNING
        log.log(level, "ended", extra={"node": self.name, "how": self.last_end})

    def _tell_missed(self) -> None:
        if self._missed is not None:
            self.signal(self._missed)

    def _said_last(self) -> str:
        """Of this life, by the end of its log."""
        try:
            with self._log_file.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(self._log_from, size - _LAST_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line[len(_SAYS) :] for line in reversed(lines) if line.startswith(_SAYS)), "")

    async def _spawn(self) -> asyncio.subprocess.Process:
        with suppress(FileNotFoundError):
            if self._log_file.stat().st_size > _LOG_BYTES:
                self._log_file.replace(self._log_file.with_suffix(".log.1"))
        descriptor = os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._log_from = os.fstat(descriptor).st_size
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=dict(self._environment),
                start_new_session=True,  # a Ctrl-C in the terminal of `qanat up` is not for the nodes
            )
        finally:
            os.close(descriptor)

    # ------------------------------------------------------------------ orders

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self._handle is not None:
            with suppress(ProcessLookupError):
                self._handle.send_signal(number)
        elif self._starting and (self._missed is None or number != signal.SIGHUP):
            self._missed = number  # whoever is to end need not read anything again

    def kill(self, pause_s: float | None) -> bool:
        """`kill -9`; it comes back after the pause, or for None when `start` is called. False if it does not
        run."""
        running = self.process is not None
        if running or pause_s is None:
            self._held, self._pause_s = pause_s is None, pause_s
            self.signal(signal.SIGKILL)
        return running

    def start(self) -> None:
        """Ends a pause, or a hold."""
        if self._held or self.process is None:
            self._held = False
            self._wake.set()

    def restart(self) -> None:
        """Asks it to stop; it is started again at once, unless it is held. One that does not stop is not
        waited for here: it can be killed."""
        if not self._held:
            self._pause_s = 0.0
            self.signal(signal.SIGTERM)
            if self.process is None:
                self._wake.set()

    async def stop(self, patience_s: float) -> None:
        """SIGTERM, after a while SIGKILL; returns when it is gone."""
        self._ending = True
        self._wake.set()
        self.signal(signal.SIGTERM)
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=patience_s)
        if not done:
            log.warning("killed: it did not stop in time", extra={"node": self.name, "limit_s": patience_s})
            self.signal(signal.SIGKILL)
            await self._task


def deaths_that_count(before: int, lived_s: float, *, killed: bool) -> int:
    """For the pause that follows the end of a life. Who was killed did not die of itself: that adds nothing
    to what was before."""
    if lived_s > _SETTLED_S:
        return 0
    left = max(0, before - int(lived_s / _FORGIVEN_S))
    return max(1, left) if killed else left + 1


def _described(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
