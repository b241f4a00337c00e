"""A process that is kept running; a supervisor that answers only to those who may ask."""

import asyncio
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.main import _exit_code
from qanat.events.errors import LocalError
from qanat.operate.child import Child, deaths_that_count
from qanat.operate.control import ControlServer, Declined, NoSuch, call
from qanat.operate.home import Home, NotRunning, Supervised
from qanat.operate.process_id import ProcessId
from qanat.runtime.loop import run

SLEEPER = "import time; print('here', flush=True); time.sleep(600)"
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True);"
    " time.sleep(600)"
)


def child(folder: Path, program: str = SLEEPER) -> Child:
    return Child("x", [sys.executable, "-c", program], folder / "x.log", os.environ, lambda: None)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def said(folder: Path, times: int) -> bool:
    log = folder / "x.log"
    return log.exists() and log.read_text().count("here") == times


def test_who_dies_is_started_again(tmp_path: Path) -> None:
    async def main() -> None:
        one = child(tmp_path)
        one.run()
        for times in (1, 2):
            await until(partial(said, tmp_path, times))
            await until(lambda: one.state == "running")
            one.signal(signal.SIGKILL)
        await until(lambda: said(tmp_path, 3) and one.state == "running")
        assert (one.starts, one.last_end) == (3, "killed by SIGKILL")
        await one.stop(20)
        assert (one.state, one.last_end) == ("stopped", "killed by SIGTERM")

    run(main)


def test_who_dies_as_it_starts_comes_back_later_each_time_and_who_is_killed_now_and_then_does_not() -> None:
    counts = {(life_s, killed): 0 for life_s in (0.5, 3.0, 11.0) for killed in (False, True)}
    for _ in range(6):
        counts = {
            (life_s, killed): deaths_that_count(count, life_s, killed=killed)
            for (life_s, killed), count in counts.items()
        }
    assert [counts[life_s, False] for life_s in (0.5, 3.0, 11.0)] == [6, 1, 0]
    assert [counts[life_s, True] for life_s in (0.5, 3.0, 11.0)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("told", "starts", "end"),
    [
        (lambda one: one.signal(signal.SIGHUP), 2, "killed by SIGHUP"),
        (lambda one: one.restart(), 2, "killed by SIGTERM"),
        (lambda one: (one.restart(), one.signal(signal.SIGHUP)), 2, "killed by SIGTERM"),
        (lambda one: one.kill(None), 1, "killed by SIGKILL"),
    ],
)
def test_what_one_is_told_while_it_is_being_started_is_not_forgotten(
    tmp_path: Path, told: Callable[[Child], object], starts: int, end: str
) -> None:
    """It runs before its number is known, and may have read before what it is to read again."""

    async def main() -> None:
        one = child(tmp_path)
        spawn, here = one._spawn, asyncio.Event()

        async def slowly() -> asyncio.subprocess.Process:
            found = await spawn()
            await here.wait()
            return found

        one._spawn = slowly  # type: ignore[method-assign]
        one.run()
        await until(partial(said, tmp_path, 1))
        assert one.process is None
        told(one)
        here.set()
        await until(lambda: one.starts == starts and one.last_end == end)
        await one.stop(20)

    run(main)


def test_a_killed_one_stays_away_for_its_pause_or_until_it_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        one = child(tmp_path)
        one.run()
        await until(lambda: said(tmp_path, 1) and one.state == "running")
        assert one.kill(None)
        await until(lambda: one.state == "held")
        assert not one.kill(None)
        one.start()
        await until(lambda: said(tmp_path, 2) and one.state == "running")
        assert one.kill(600.0)
        await until(lambda: one.state == "waiting")
        one.start()
        await until(lambda: said(tmp_path, 3) and one.state == "running")
        one.restart()
        await until(lambda: said(tmp_path, 4) and one.state == "running")
        assert one.kill(None)
        await until(lambda: one.state == "held")
        await one.stop(20)

    run(main)


def test_one_that_is_held_stays_away_whatever_else_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        one = child(tmp_path)
        one.run(held=True)  # as before this supervisor began
        await until(lambda: one.state == "held")
        one.restart()
        assert not one.kill(5.0)
        assert (one.state, one.held, one.starts) == ("held", True, 0)
        one.start()
        await until(lambda: said(tmp_path, 1) and one.state == "running")
        assert one.kill(0.3)
        await until(lambda: one.state == "waiting")
        assert not one.kill(None)  # told while it waits to be back
        began = time.monotonic()
        await until(lambda: time.monotonic() - began > 1.0)
        assert (one.state, one.starts) == ("held", 1)
        await one.stop(20)
        assert one.state == "stopped"

    run(main)


def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        one = child(tmp_path, DEAF)
        one.run()
        await until(lambda: said(tmp_path, 1) and one.process is not None)
        process = one.process
        assert process is not None
        await one.stop(0.1)
        assert one.last_end == "killed by SIGKILL"
        assert not process.is_alive()

    run(main)


def test_one_that_is_stopped_while_it_starts(tmp_path: Path) -> None:
    async def main() -> None:
        one = child(tmp_path)
        one.run()
        await one.stop(20)
        assert one.state == "stopped"
        assert one.process is None

    run(main)


def test_one_that_cannot_start_is_tried_again_more_and_more_rarely(tmp_path: Path) -> None:
    async def main() -> None:
        one = Child("x", [str(tmp_path / "no such program")], tmp_path / "x.log", os.environ, lambda: None)
        began = time.monotonic()
        one.run()
        await until(lambda: time.monotonic() - began > 1.0)
        assert one.last_end.startswith("could not be started: No such file")
        assert one.state == "waiting"
        await one.stop(20)

    run(main)


def test_a_large_log_is_moved_aside(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "x.log").write_bytes(bytes(9 << 20))
        one = child(tmp_path)
        one.run()
        await until(lambda: said(tmp_path, 1))
        assert (tmp_path / "x.log.1").stat().st_size == 9 << 20
        await one.stop(20)

    run(main)


def test_the_supervisor_answers_who_knows_the_token(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "fail":
            raise LocalError("it cannot be done")
        if request["do"] == "name nothing":
            raise NoSuch("there is no node 'x'")
        if request["do"] == "break":
            raise ZeroDivisionError
        if request["do"] == "write":
            raise OSError(errno.ENOSPC, "No space left on device", "held.json")
        return {"did": request["do"]}

    async def raw(port: int, line: bytes) -> dict[str, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(line + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline())
        writer.close()
        await writer.wait_closed()
        return answer

    async def main() -> None:
        server = ControlServer(handle)
        await server.start()
        held = home.lock()
        assert held is not None
        home.supervised = Supervised(ProcessId.of(os.getpid()), server.port, server.token)
        assert await asyncio.to_thread(call, home, "this") == {"did": "this"}
        with pytest.raises(Declined, match="it cannot be done"):
            await asyncio.to_thread(call, home, "fail")
        with pytest.raises(NoSuch, match="there is no node 'x'") as mistake:
            await asyncio.to_thread(call, home, "name nothing")
        assert _exit_code(mistake.value) == 2
        with pytest.raises(Declined, match=r"could not do it: .*No space left on device: 'held\.json'"):
            await asyncio.to_thread(call, home, "write")
        with pytest.raises(Declined, match=r"see supervisor\.log"):
            await asyncio.to_thread(call, home, "break")
        assert await raw(server.port, b'{"do": "this", "token": "guess"}') == {"error": "the token is wrong"}
        for line in (b"", b"[]", b'{"do": 1}', b"\xff"):
            assert await raw(server.port, line) == {"error": "this is no request"}
        os.close(held)
        server.close()
        with pytest.raises(NotRunning):
            call(home, "this")

    run(main)
