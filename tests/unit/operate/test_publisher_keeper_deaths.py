"""What a keeper of publishers says of those that die, and what it does with those that another left
behind."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.events.errors import LocalError
from qanat.events.kept import Kept
from qanat.operate import publisher_keeper
from qanat.operate.child import Child
from qanat.operate.process_id import ProcessId
from qanat.operate.publisher_keeper import LOGS, PROCESSES, Keeper
from qanat.runtime.folder_lock import lock_folder

pytestmark = pytest.mark.paper("W14")

FILE = '[node]\ndata = "/nowhere"\n[log]\nurl = "rocksdb:///nowhere"\n'
SLEEPER = "import time; time.sleep(600)"
TAKEN = "import sys; print('x\\nqanat: the port is taken\\ny', file=sys.stderr); sys.exit(2)"


def programs(monkeypatch: pytest.MonkeyPatch, **of: str) -> None:
    """Instead of publishers, these."""

    def child(name: str, command: object, *rest: Any) -> Child:
        return Child(name, [sys.executable, "-c", of[name]], *rest)

    monkeypatch.setattr(publisher_keeper, "Child", child)


async def kept(keeper: Keeper, told: Callable[[], None], until: Callable[[], object]) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(keeper.run(0.02, stop, told))
    async with asyncio.timeout(30):
        while not until():
            assert not task.done() or task.result()
            await asyncio.sleep(0.01)
    stop.set()
    await task


def test_a_death_is_told_with_its_reason_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch, a=SLEEPER, b=TAKEN)
    for name in "ab":
        (tmp_path / f"{name}.toml").write_text(FILE)
    keeper, told = Keeper(tmp_path), list[dict[str, Any]]()

    def starts() -> int:
        found: int = keeper.status()["publishers"].get("b", {"starts": 0})["starts"]
        return found

    asyncio.run(kept(keeper, lambda: told.append(keeper.status()), lambda: starts() >= 3))
    assert [one["died"] for one in told] == [{}, {"b": "exit code 2: the port is taken"}]
    assert told[-1]["publishers"]["b"]["last_end"] == "exit code 2"
    json.dumps(told)


def test_what_a_killed_keeper_left_behind_is_ended(tmp_path: Path) -> None:
    (tmp_path / LOGS).mkdir()
    left = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        stranger = ProcessId(1, "another life")
        found = [("a", ProcessId.of(left.pid)), ("b", stranger)]
        (tmp_path / LOGS / PROCESSES).write_bytes(msgspec.json.encode(found))
        asyncio.run(kept(Keeper(tmp_path), lambda: None, lambda: left.poll() is not None))
    finally:
        left.kill()
        left.wait()


def test_whom_it_started_stands_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch, a=SLEEPER)
    (tmp_path / "a.toml").write_text(FILE)
    file, seen = tmp_path / LOGS / PROCESSES, list[tuple[str, ProcessId]]()

    def written() -> bool:
        if file.exists():
            seen[:] = msgspec.json.decode(Kept(file).read() or b"[]", type=list[tuple[str, ProcessId]])
        return bool(seen) and seen[0][1].is_alive()

    asyncio.run(kept(Keeper(tmp_path), lambda: None, written))
    assert seen[0][0] == "a"
    assert not seen[0][1].is_alive()
    assert msgspec.json.decode(Kept(file).read() or b"") == []


def test_two_keepers_do_not_share_a_folder(tmp_path: Path) -> None:
    lock_folder(tmp_path / LOGS)
    with pytest.raises(LocalError, match="another `publisher keep`"):
        asyncio.run(Keeper(tmp_path).run(0.02, asyncio.Event(), lambda: None))
