"""Whatever call the power goes at, what was promised before is found after: each kind of file, by the system
calls of real processes."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration import power_programs as programs
from tests.servers.power import Disk, Recording, record

from qanat.events import durable
from qanat.log import disk as disk_module
from qanat.runtime import journal_file
from qanat.runtime.journal import Journal

pytestmark = [
    pytest.mark.server("strace"),
    pytest.mark.usefixtures("unsynced_images"),
]


@pytest.fixture
def unsynced_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here thousands of images are opened, and the power stays: nothing waits for the disk. The programs are
    other processes."""
    for module in (durable, disk_module, journal_file):
        monkeypatch.setattr(module, "sync_data", lambda _file: None)
    monkeypatch.setattr(os, "fsync", lambda _file: None)


Recover = Callable[[Path], dict[str, int]]


def lost(recording: Recording, folder: Path, recover: Recover, every: int = 1) -> dict[str, tuple[int, Disk]]:
    """Cuts the power at every (n-th) call. For each promise that was not kept, a call and the disk; marks are
    `name number`, or a number."""
    recording.check_model()
    assert recording.marks
    found: dict[str, tuple[int, Disk]] = {}
    for at, disk in itertools.product(
        range(len(recording.calls) % every, len(recording.calls) + 1, every), Disk
    ):
        image = recording.cut(at, disk, folder / "image")
        wanted: dict[str, int] = {}
        for promise in recording.promised(at):
            name, _, number = promise.rpartition(" ")
            wanted[name] = int(number)
        held = recover(image)
        found |= {name: (at, disk) for name, number in wanted.items() if held[name] < number}
        shutil.rmtree(image)
    return found


def journal(root: Path) -> dict[str, int]:
    opened = Journal(root / "data" / "journals" / "m.journal")
    assert opened.repaired == [], "a power cut is no damage"
    opened.close()
    return {"": programs.latest(opened.records)}


def archive(root: Path) -> dict[str, int]:
    return {"": programs.archived(root)}


KINDS: list[tuple[str, Recover, int]] = [
    ("journal", journal, 1),
    ("deployment", programs.deployed, 3),
    ("ingest", programs.ingested, 3),
    ("archive", archive, 13),
    ("server", programs.served, 7),
]
"""Program, how its files are read, and at every how many calls the power goes in the normal suite."""
NAMES = [name for name, _, _ in KINDS]


@pytest.mark.parametrize(("program", "recover", "every"), KINDS, ids=NAMES)
def test_nothing_that_was_promised_is_forgotten(
    tmp_path: Path, program: str, recover: Recover, every: int
) -> None:
    recording = record(tmp_path, f"tests.integration.power_programs:{program}")
    assert lost(recording, tmp_path, recover, every) == {}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("program", "recover", "every"),
    [kind for kind in KINDS if kind[2] > 1],
    ids=[name for name, _, every in KINDS if every > 1],
)
def test_nothing_is_forgotten_at_any_call(tmp_path: Path, program: str, recover: Recover, every: int) -> None:
    recording = record(tmp_path, f"tests.integration.power_programs:{program}")
    assert every > 1
    assert lost(recording, tmp_path, recover) == {}


def test_what_is_not_synced_is_found(tmp_path: Path) -> None:
    recording = record(tmp_path, "tests.integration.power_programs:careless")
    assert lost(recording, tmp_path, programs.careful).keys() == {"bytes", "name", "folder"}
