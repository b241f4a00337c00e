"""An archive is the stream, without gap and duplicate, wherever its writer is killed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.archiving import (
    QUICK,
    DyingStorage,
    Killed,
    archive_all,
    archiver,
    read_archived,
    read_stream,
)

from qanat.client import Client
from qanat.pipeline.archive.errors import Fenced
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.storage import LocalStorage

pytestmark = pytest.mark.paper("D4")


def test_killed_at_every_step_nothing_is_lost_or_doubled(server_process: Any, tmp_path: Path) -> None:
    """The writer dies before and after each change that it makes to its folder; the next one goes on. Merging
    is part of it."""
    server_process.start("--set", "log.mode=memory")
    settings = msgspec.structs.replace(QUICK, small_files=4, batch_rows=10)
    folder = tmp_path / "archive"
    kills = 0
    with Client(server_process.url) as client:
        for at, after in itertools.product(range(1, 21), (False, True)):
            client.publish_many("s", [b"%d" % n for n in range(25)], keys=[b"k%d" % n for n in range(25)])
            storage = DyingStorage(str(folder), at, after=after)
            try:
                archive_all(server_process.url, storage, "s", settings)
            except Killed:
                kills += 1
        manifest = archive_all(server_process.url, folder, "s", settings)
        end = client.look("s").readable
        history = History(LocalStorage(str(folder)), "s")
        assert manifest.complete() == ((1, end),)
        assert read_archived(history).equals(read_stream(client, "s", 1, end))
    assert kills >= 30
    assert manifest.generation >= 1, "nothing was merged"
    kept = {file.path for version in history.versions() for file in history.read(version).files}
    found = {str(path.relative_to(history.storage.root)) for path in folder.rglob("*.parquet")}
    assert found == kept, "what the killed left behind is gone, and nothing else"


def test_a_writer_whose_place_was_taken_commits_nothing(server_process: Any, tmp_path: Path) -> None:
    server_process.start("--set", "log.mode=memory")
    with Client(server_process.url) as client:
        client.publish_many("s", [b"x"] * 30)
        old = archiver(server_process.url, tmp_path / "archive", "s")
        assert old.step() is not None
        client.publish_many("s", [b"y"] * 30)
        with archiver(server_process.url, tmp_path / "archive", "s") as new:
            assert new.step() is not None
            client.publish_many("s", [b"z"] * 30)
            with pytest.raises(Fenced):
                list(old.run(until_end=True))
            assert new.step() is not None
            assert new.manifest.complete() == ((1, 90),)
            assert read_archived(new.history).equals(read_stream(client, "s", 1, 90))
        old.close()


def test_the_server_is_killed_while_it_is_archived(server_process: Any, tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUICK, patience_ms=60_000, batch_rows=40)
    server_process.start()
    with Client(server_process.url) as client:
        for round_ in range(3):
            client.publish_many("s", [b"%d" % n for n in range(100)])
            with archiver(server_process.url, tmp_path / "archive", "s", settings) as job:
                commits = 0
                for _ in job.run(until_end=True):
                    commits += 1
                    if commits == 1:
                        server_process.kill()
                        server_process.start()
                assert commits >= 2
                assert job.manifest.complete() == ((1, 100 * (round_ + 1)),)
        assert read_archived(History(LocalStorage(str(tmp_path / "archive")), "s")).equals(
            read_stream(client, "s", 1, 300)
        )
