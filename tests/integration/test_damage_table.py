"""Every kind of file, damaged in every way: what was once synced is never given up in silence, and the page
says what happens instead."""

from __future__ import annotations

import gc
import os
import random
import re
from pathlib import Path

import pytest
from tests.integration.damaging import LOST, NOTHING, PAGE, Made, World, cells, drawn, rows, section, written
from tests.integration.damaging_archives import ArchiveWorld, DeliveriesWorld, SinkWorld
from tests.integration.damaging_states import (
    DeploymentWorld,
    FilesWorld,
    KeeperWorld,
    PipelineWorld,
    PublisherWorld,
)
from tests.integration.damaging_streams import CoordinatorWorld, EnsembleWorld, ReplicaWorld, ServerWorld

from qanat.events import durable
from qanat.log import disk as disk_module
from qanat.runtime import journal_file

WORLDS: tuple[type[World], ...] = (
    ServerWorld,
    ReplicaWorld,
    CoordinatorWorld,
    EnsembleWorld,
    DeploymentWorld,
    PublisherWorld,
    KeeperWorld,
    PipelineWorld,
    FilesWorld,
    ArchiveWorld,
    SinkWorld,
    DeliveriesWorld,
)
NAMES = [world.name for world in WORLDS]


WRITES = re.compile(
    r"durable import [^\n]*\b(?:replace|make|tell|written)\b|kept"
    r" import|O_CREAT|isk\.open\(|write_atomically\(disk"
)
WRITERS: dict[str, str] = {
    "capture/files/filesystem.py": "a reader",
    "capture/files/register.py": "a reader",
    "capture/snapshot_feed.py": "a reader",
    "client/record.py": "recorded deliveries",
    "client/staging.py": "a server alone",
    "events/durable.py": "for all",
    "events/kept.py": "for all",
    "log/disk.py": "for all",
    "log/manifest.py": "a server alone",
    "log/recovery.py": "a server alone",
    "log/recovery_tail.py": "a server alone",
    "log/rewrite.py": "a server alone",
    "log/store.py": "a server alone",
    "log/synced.py": "a server alone",
    "replica/damage.py": "a replica: a sentence; the damage is found again without it",
    "operate/child.py": "a deployment",
    "operate/cuts.py": "a deployment",
    "operate/other_deployments.py": "a deployment",
    "operate/home.py": "a deployment",
    "operate/supervisor.py": "a deployment",
    "serving/log_history.py": "a replica: an empty mark in a folder that is being emptied",
    "publisher/changes.py": "a publisher",
    "operate/publisher_keeper.py": "a machine's monitor",
    "publisher/notes.py": "a publisher",
    "operate/region_processes.py": "tests'",
    "serving/stream_registry.py": "a server alone",
    "pipeline/archive/storage.py": "an archive",
    "pipeline/changes/snapshot.py": "a reader",
    "pipeline/ingest/dead_letters.py": "a pipeline",
    "pipeline/ingest/live.py": "a pipeline",
    "pipeline/ingest/state.py": "a pipeline",
    "pipeline/ingest/trouble.py": "a pipeline",
    "pipeline/sink/publishing.py": "Spark's sink",
    "pipeline/sink/staging.py": "Spark's sink",
    "runtime/admin_note.py": "a server alone",
    "runtime/folder_lock.py": "a server alone",
    "runtime/java.py": "written anew at each start, and run to see that it works",
    "runtime/journal_file.py": "a replica",
    "runtime/reserve.py": "a replica",
    "runtime/journal_reached.py": "a replica",
}
"""Every module that writes files, and which part of the page has them, or why none has."""


def test_every_module_that_writes_files_is_known() -> None:
    source = PAGE.parents[1] / "src" / "qanat"
    peoples_own = (
        "bench/",
        "studies/",
        "cli/",
        "log/crash_disk.py",
        "log/disk_memory.py",
        "sim/",
    )
    found = {
        name
        for path in source.rglob("*.py")
        if not (name := str(path.relative_to(source))).startswith(peoples_own)
        and WRITES.search(path.read_text(encoding="utf-8"))
    }
    assert sorted(found - WRITERS.keys()) == [], (
        "say in WRITERS which kinds of files it writes, and have them damaged"
    )
    assert sorted(WRITERS.keys() - found) == [], "no longer needed"


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of states are made and opened, and the power stays."""
    for module in (durable, disk_module, journal_file):
        monkeypatch.setattr(module, "sync_data", lambda _file: None)
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)  # nodes do it once in a process's life


@pytest.mark.parametrize("world", WORLDS, ids=NAMES)
def test_the_page_says_what_happens(
    tmp_path: Path, world: type[World], request: pytest.FixtureRequest
) -> None:
    made = Made(world(), tmp_path / "world")
    assert made.unknown == [], "a kind of file that the page does not have"
    assert made.undamaged() == (NOTHING, "")
    lines: list[str] = []
    silent: list[str] = []
    for kind in world.kinds:
        if kind.name:
            found = list(cells(made, kind))
            silent += [
                f"{kind.name} {harm}" for harm, each in found if each.what == LOST and harm not in kind.apart
            ]
            lines += rows(kind, found)
    page = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--update-damage"):
        PAGE.write_text(written(world.name, lines, page), encoding="utf-8")
    else:
        begin, end = section(page, world.name)
        assert page[begin:end].splitlines()[2:] == lines, "run `./qanat test --update-damage`"
    assert silent == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("world", WORLDS, ids=NAMES)
def test_nothing_is_given_up_in_silence_wherever_it_is_damaged(
    tmp_path: Path, world: type[World], seed: int
) -> None:
    made, rng = Made(world(), tmp_path / "world"), random.Random(seed)
    for kind in world.kinds:
        gc.collect()  # what did not start holds files until then
        for _ in range(25 if kind.name else 0):
            harm, outcome = drawn(made, kind, rng)
            assert outcome.what != LOST or harm.partition(" at")[0] in kind.apart, f"{kind.name} {harm}"
