"""A publisher whose disk is full says which file has no room, in one sentence."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.servers.rocksdb import batch, database, log_file, put, write_log

from qanat.cli.main import main
from qanat.events import durable
from qanat.runtime import journal_file


def full(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def run(folder: Path) -> int:
    write_log(database(folder / "log"), 3, log_file([batch(1, put(b"k", b"v"))]))
    file = folder / "shop.toml"
    file.write_text(
        f'[node]\nlisten = "127.0.0.1:0"\ndata = "{folder / "data"}"\n[admin]\nport = 0\n'
        f'[log]\nurl = "rocksdb://{folder / "log"}?dataset=d"\n[applications.cache]\nstart = "earliest"\n'
    )
    return main(["publisher", "run", str(file), "--quiet"])


@pytest.mark.paper("W14")
def test_one_that_runs_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journal_file, "sync_data", full)
    assert run(tmp_path) == 1
    said = capfd.readouterr().err
    path = tmp_path / "data" / "journals" / "publisher.journal"
    assert f"qanat: the publisher stopped: No space left on device: {path}\n" in said
    assert "Traceback" not in said


def test_one_that_cannot_start_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sync = durable.sync_data

    def no_room(handle: int) -> object:
        name = os.readlink(f"/proc/self/fd/{handle}")
        return full() if Path(name).name == ".dataset.new" else sync(handle)

    monkeypatch.setattr(durable, "sync_data", no_room)
    assert run(tmp_path) == 3
    assert f"qanat: No space left on device: {tmp_path / 'data' / 'dataset'}\n" in capfd.readouterr().err
