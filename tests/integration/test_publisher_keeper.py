"""The monitor of a machine: publishers come, go and come back as the folder of files says."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.servers.rocksdb import batch, database, log_file, put, write_log
from tests.waiting import run, until

from qanat.operate.publisher_keeper import Keeper
from qanat.runtime.admin_note import read_note


def file(folder: Path, name: str, more: str = "") -> None:
    log = folder / f"{name}-log"
    if not log.exists():
        write_log(database(log), 3, log_file([batch(1, put(b"k", b"v"))]))
    text = (
        f'[node]\nname = "test/{name}"\nlisten = "127.0.0.1:0"\ndata = "{folder / name}"\n[admin]\nport = 0\n'
        f'[log]\nurl = "rocksdb://{log}?dataset={name}"\n{more}'
    )
    (folder / f"{name}.new").write_text(text, encoding="utf-8")
    (folder / f"{name}.new").rename(folder / "files" / f"{name}.toml")


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.paper("W14")
def test_a_machine_runs_the_publishers_whose_files_it_has(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    keeper = Keeper(files, "db-1")

    def of(name: str) -> dict[str, Any]:
        found: dict[str, Any] = keeper.status()["publishers"].get(name, {})
        return found

    def pid(name: str) -> int:
        note = read_note(tmp_path / name)
        return 0 if note is None or note.pid != of(name).get("pid") else note.pid

    async def work() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(keeper.run(0.02, stop, lambda: None))

        async def soon(condition: Callable[[], object]) -> None:
            await until(condition, every_s=0.02, say=keeper.status)

        file(tmp_path, "shop", '[applications.cache]\nstart = "earliest"\n')
        file(tmp_path, "other", '[monitor]\nhosts = ["db-2"]\n')
        await soon(lambda: pid("shop"))
        assert list(keeper.status()["publishers"]) == ["shop"]
        first = pid("shop")

        file(tmp_path, "shop", "[publisher]\ncaravans_max = 9\n")
        (files / "broken.toml").write_text("[nodes]\n")
        await soon(lambda: "broken" in keeper.problems)
        assert pid("shop") == first, "it was told, not started again"
        os.kill(first, signal.SIGKILL)
        await soon(lambda: pid("shop") not in (0, first))
        second = pid("shop")
        file(tmp_path, "shop", "[transport]\nframe_limit_bytes = 1048576\n")
        await soon(lambda: pid("shop") not in (0, first, second))
        third = pid("shop")

        file(tmp_path, "other", '[monitor]\nhosts = ["db-1"]\n')
        (files / "shop.toml").unlink()
        # On a busy machine it may take too long to stop, and is killed then: its note stays, and nobody is
        # there.
        await soon(lambda: pid("other") and not of("shop") and not runs(third))
        last = pid("other")
        stop.set()
        await task
        assert not runs(last)

    run(work(), 240, uvloop=False)
