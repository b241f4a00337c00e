"""Where a publisher's operators find it: nowhere, once it has ended, however it ended."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.servers.rocksdb import batch, database, log_file, put, write_log

from qanat.events.errors import QanatError
from qanat.publisher.node import PublisherNode
from qanat.publisher.settings import PublisherSettings
from qanat.runtime.admin_note import read_note
from qanat.runtime.config import load
from qanat.runtime.folder_lock import is_locked
from qanat.runtime.journal import CorruptJournal

pytestmark = pytest.mark.paper("W14")


def node(folder: Path, **more: Any) -> PublisherNode:
    write_log(database(folder / "log"), 3, log_file([batch(1, put(b"k", b"v"))]))
    flags = {
        "node.data": str(folder / "data"),
        "node.listen": "127.0.0.1:0",
        "admin.port": 0,
        "log.url": f"rocksdb://{folder / 'log'}?dataset=d",
    }
    return PublisherNode(partial(load, PublisherSettings, flags=flags | more))


def test_a_stop_that_is_cut_short_leaves_no_note_but_keeps_the_folder(tmp_path: Path) -> None:
    disk = threading.Event()

    async def main() -> None:
        one = node(tmp_path, **{"node.stop_ms": 20, "applications": {"cache": {"start": "0:0"}}})

        def ready() -> None:
            assert read_note(tmp_path / "data") is not None
            one.driver.disk.submit(disk.wait)
            one.stop()

        try:
            assert not await one.serve(ready), "it was cut short"
            assert read_note(tmp_path / "data") is None
            assert is_locked(tmp_path / "data"), "something may still be written to it"
        finally:
            disk.set()

    asyncio.run(main())


def test_one_that_could_not_start_leaves_no_note(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            one = node(tmp_path, **{"node.listen": f"127.0.0.1:{taken.getsockname()[1]}"})
            with pytest.raises(QanatError):
                await one.serve()
        assert (tmp_path / "data" / "dataset").exists()
        assert read_note(tmp_path / "data") is None

    asyncio.run(main())


def test_a_journal_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Its applications would begin anew in silence, and never hear of what lies between."""

    async def life() -> None:
        one = node(tmp_path)
        await one.on_start()
        await one.on_stop()

    def refused() -> None:
        with pytest.raises(
            CorruptJournal, match=r"publisher\.journal is gone, and so is its twin; datamarkers stood in"
        ):
            asyncio.run(life())
        (tmp_path / "data" / "lock").unlink()  # in this process it is held still

    asyncio.run(life())
    for folder in ("journals", "journals.twins"):
        (tmp_path / "data" / folder / "publisher.journal").unlink()
    refused()
    for name in ("began", ".began.twin"):
        (tmp_path / "data" / name).unlink()
    asyncio.run(life())
