"""Bringing a deployment up and down, for commands, demonstrations and tests."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qanat.events.errors import LocalError
from qanat.operate.control import call
from qanat.operate.file import Deployment, write
from qanat.operate.home import Home
from qanat.operate.overview import Overview, look
from qanat.operate.plan import compare

_POLL_S = 0.05
_SUPERVISOR_S = 20.0
SERVING_S = 90.0
"""Long for ten processes on a slow machine; `up` shows what it waits for meanwhile."""

Say = Callable[[str], None]


class NotServing(LocalError):
    """The deployment runs, but not every region serves."""

    exit_code = 1


def start(home: Home, deployment: Deployment, *, guarded: bool = False) -> subprocess.Popen[bytes]:
    """Starts the supervisor, which goes on when we end; `guarded`: which ends with us. Refuses what a stopped
    deployment in this folder cannot become."""
    home.make()
    before = home.deployment
    deployment = home.decided(deployment)
    if before is not None:
        compare(before, deployment, home.owners, None).check()
    if before != deployment:
        home.deployment = deployment
    command = [sys.executable, "-P", "-m", "qanat.operate", str(home.folder)]
    with home.log_file.open("ab") as log:
        supervisor = subprocess.Popen(
            [*command, "--guarded"] if guarded else command,
            stdin=subprocess.PIPE if guarded else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    try:
        _wait_for_supervisor(home, supervisor)
    except BaseException:
        _let_go(supervisor)
        raise
    return supervisor


def _wait_for_supervisor(home: Home, supervisor: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SUPERVISOR_S
    while (state := home.supervised) is None or state.process.pid != supervisor.pid:
        if supervisor.poll() is not None:
            raise LocalError(f"the supervisor did not start: {_last_line(home.log_file)}")
        if time.monotonic() > deadline:
            raise LocalError(f"the supervisor said nothing for {_SUPERVISOR_S:g} s; see {home.log_file}")
        time.sleep(_POLL_S)


def _let_go(supervisor: subprocess.Popen[bytes]) -> None:
    """Ends a guarded one, and waits for it; another goes on."""
    if supervisor.stdin is not None:
        supervisor.stdin.close()
        supervisor.wait()


def wait_until_serving(home: Home, say: Say = lambda _: None, patience_s: float = SERVING_S) -> Overview:
    """Until every region has its whole chain and every link is up; says what is missing as it changes. Nodes
    that are held are not waited for."""
    deadline = time.monotonic() + patience_s
    said = ""
    while True:
        overview = look(home)
        missing = overview.missing(but_held=True)
        if not missing:
            return overview
        if time.monotonic() > deadline:
            raise NotServing(
                f"after {patience_s:g} s: {'; '.join(missing)}. It keeps trying; see `qanat status` and"
                f" {home.folder}/logs"
            )
        if missing[0] != said:
            said = missing[0]
            say(
                said.partition(": ")[0]
            )  # what to do if it stays so is told in the end: a start is full of such moments
        time.sleep(2 * _POLL_S)


def change(home: Home, new: Deployment, say: Say = lambda _: None, patience_s: float = SERVING_S) -> None:
    """Makes a running deployment another, as `compare` plans it. Nodes that must restart do so one after the
    other, the next only when every region serves again: a chain of two or more never stops serving."""
    answer = call(home, "apply", deployment=write(new))
    wait_until_serving(home, say, patience_s)
    for node in answer["restart"]:
        overview = look(home)
        if node in overview.held():
            say(f"{node} is held, and takes the change when it is started")
            continue
        say(f"restarting {node}")
        starts = overview.supervisor["nodes"][node]["starts"]
        call(home, "restart", node=node)
        deadline = time.monotonic() + patience_s
        while look(home).supervisor["nodes"][node]["starts"] == starts:
            if time.monotonic() > deadline:
                raise NotServing(
                    f"{node} did not stop within {patience_s:g} s; kill it with `qanat kill {node}`"
                )
            time.sleep(_POLL_S)
        wait_until_serving(home, say, patience_s)


def stop(home: Home, patience_s: float = 40.0) -> bool:
    """Ends the supervisor and all nodes, also those that a killed supervisor left behind; False if nothing
    ran."""
    state = home.supervised
    if state is not None:
        call(home, "stop")
        deadline = time.monotonic() + patience_s
        while state.process.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        state.process.end(0.0)
    left = [process for process in home.children.values() if process.is_alive()]
    for process in left:
        process.end(10.0)
    return state is not None or bool(left)


@contextmanager
def temporary(deployment: Deployment, prefix: str = "qanat-", say: Say = lambda _: None) -> Iterator[Home]:
    """A deployment that serves, in a folder of its own; at the end, however it comes, neither is there any
    more."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        home = Home(folder)
        supervisor = start(home, deployment, guarded=True)
        try:
            wait_until_serving(home, say)
            yield home
        finally:
            _let_go(supervisor)
            stop(home)


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
