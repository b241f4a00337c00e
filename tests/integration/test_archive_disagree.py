"""Where stream and archive disagree, or the archive with itself, it is said; nothing is passed over."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.integration.archiving import QUICK, archive_all, archiver, read_archived, read_stream
from tests.waiting import wait_until

from qanat.client import Client
from qanat.pipeline.archive.check import check_files
from qanat.pipeline.archive.clean import clean
from qanat.pipeline.archive.errors import ArchiveDamaged, ArchiveGap, StreamBehind, StreamChanged
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.archive.tables import present

pytestmark = pytest.mark.paper("D4")

SHORT = """\
[stream.short]
segment_bytes = 65536
retain_bytes = 65536
"""


def history_of(folder: Path, stream: str) -> History:
    return History(LocalStorage(str(folder)), stream)


def test_a_stream_made_anew_is_not_the_archived_one(server_process: Any, tmp_path: Path) -> None:
    server_process.start()
    with Client(server_process.url) as client:
        client.publish_many("s", [b"x"] * 30)
        before = archive_all(server_process.url, tmp_path / "archive", "s")
    server_process.kill()
    shutil.rmtree(server_process.data)
    server_process.start()
    with Client(server_process.url) as client:
        for count in (10, 90):  # it ends before the archive, then behind it
            client.publish_many("s", [b"x"] * count)
            with pytest.raises(StreamChanged, match="made anew"):
                archive_all(server_process.url, tmp_path / "archive", "s")
    assert history_of(tmp_path / "archive", "s").newest().files == before.files


def test_a_stream_that_was_set_back_is_not_the_archived_one(server_process: Any, tmp_path: Path) -> None:
    """Its birth is the same: a former state of its folder was restored."""
    server_process.start()
    with Client(server_process.url) as client:
        client.publish_many("s", [b"x"] * 10)
    server_process.stop()
    shutil.copytree(server_process.data, tmp_path / "copy")
    server_process.start()
    with Client(server_process.url) as client:
        client.publish_many("s", [b"x"] * 30)
        archive_all(server_process.url, tmp_path / "archive", "s")
    server_process.kill()
    shutil.rmtree(server_process.data)
    shutil.copytree(tmp_path / "copy", server_process.data)
    server_process.start()
    with Client(server_process.url) as client:
        with pytest.raises(StreamBehind, match="up to 40, the server only up to 10"):
            archive_all(server_process.url, tmp_path / "archive", "s")
        client.publish_many("s", [b"x"] * 60)
        with pytest.raises(StreamChanged, match="event 40"):
            archive_all(server_process.url, tmp_path / "archive", "s")


def test_events_dropped_before_they_were_archived_are_refused_or_written_down(
    server_process: Any, tmp_path: Path
) -> None:
    file = tmp_path / "server.toml"
    file.write_text(SHORT)
    folder = tmp_path / "archive"
    server_process.start("--config", str(file), "--set", "streams.collect_ms=20")
    with Client(server_process.url) as client:
        client.publish_many("short", [b"%1000d" % n for n in range(20)])
        archive_all(server_process.url, folder, "short")

        def dropped() -> bool:
            client.publish_many("short", [b"%1000d" % n for n in range(50)])
            return client.look("short", "earliest").first > 21

        wait_until(dropped)
        with pytest.raises(ArchiveGap, match="--accept-losses") as caught:
            archive_all(server_process.url, folder, "short")
        assert caught.value.first == 21
        manifest = archive_all(server_process.url, folder, "short", accept_losses=True)
    # The server may drop more while it is being archived: then that is written down as well.
    assert manifest.lost[0][0] == 21
    told = sorted([*manifest.lost, *manifest.complete()])
    assert [first for first, _ in told] == [1, *(last + 1 for _, last in told[:-1])]
    assert told[0] == (1, 20) and told[-1][1] == manifest.next - 1
    seqs = read_archived(history_of(folder, "short"))["seq"].to_pylist()
    assert seqs == [seq for first, last in manifest.complete() for seq in range(first, last + 1)]


def test_files_that_are_missing_or_changed_are_found(server_process: Any, tmp_path: Path) -> None:
    server_process.start("--set", "log.mode=memory")
    folder = tmp_path / "archive"
    with Client(server_process.url) as client:
        for _ in range(4):
            client.publish_many("s", [b"x"] * 15)
            archive_all(server_process.url, folder, "s", msgspec.structs.replace(QUICK, range_rows=1000))
    history = history_of(folder, "s")
    files = history.newest().files
    assert len(files) == 4 and [what for _, what in check_files(history)] == ["", "", "", ""]
    paths = [Path(history.storage.root) / file.path for file in files]
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    data = bytearray(paths[2].read_bytes())
    data[len(data) // 2] ^= 1
    paths[2].write_bytes(data)
    wrong = [what for _, what in check_files(history)]
    assert (
        wrong[0] == "it is missing"
        and "bytes and should" in wrong[1]
        and "checksum" in wrong[2]
        and not wrong[3]
    )
    for file in files[:2]:
        with pytest.raises(ArchiveDamaged, match=f"holds {file.first} to {file.last}"):
            present(history.storage, [file])
    manifests = sorted(Path(history.storage.root).glob("_manifest/*.json"))
    manifests[-1].write_bytes(manifests[-1].read_bytes()[:-2])
    with pytest.raises(ArchiveDamaged, match="checksum or size"):
        history.newest()


def test_a_new_archive_begins_where_it_is_told(server_process: Any, tmp_path: Path) -> None:
    server_process.start("--set", "log.mode=memory")
    with Client(server_process.url) as client:
        client.publish_many("s", [b"x"] * 30)
        with archiver(server_process.url, tmp_path / "late", "s", start="latest") as late:
            assert late.step() is None
            client.publish_many("s", [b"y"] * 5)
            assert late.step() is not None
            assert late.manifest.complete() == ((31, 35),)
        assert archive_all(server_process.url, tmp_path / "seven", "s", start=7).complete() == ((7, 35),)
        with archiver(server_process.url, tmp_path / "seven", "s", start="earliest") as again:
            assert again.step() is None, "an archive that exists goes on behind what it has"


def test_files_are_cut_where_a_day_begins(
    server_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time_ns=time.time_ns)
    monkeypatch.setattr("qanat.client.client.time", clock)
    server_process.start("--set", "log.mode=memory")
    days = [datetime(2026, 2, day, 12, tzinfo=UTC) for day in (26, 27, 28, 28)] + [
        datetime(2026, 3, 5, tzinfo=UTC)
    ]
    with Client(server_process.url) as client:
        for day in days:
            clock.time_ns = lambda day=day: int(day.timestamp() * 1e9)
            client.publish_many("s", [b"x"] * 6)
        manifest = archive_all(server_process.url, tmp_path / "archive", "s")
        history = history_of(tmp_path / "archive", "s")
        found: dict[str, list[int]] = {}
        for file in manifest.files:
            found.setdefault(file.day, []).extend(range(file.first, file.last + 1))
        assert found == {
            "2026-02-26": list(range(1, 7)),
            "2026-02-27": list(range(7, 13)),
            "2026-02-28": list(range(13, 25)),
            "2026-03-05": list(range(25, 31)),
        }
        assert read_archived(history).equals(read_stream(client, "s", 1, 30))


def test_what_is_not_needed_any_more_is_removed(server_process: Any, tmp_path: Path) -> None:
    server_process.start("--set", "log.mode=memory")
    settings = msgspec.structs.replace(QUICK, small_files=5, range_rows=1000)
    history = history_of(tmp_path / "archive", "s")
    with (
        Client(server_process.url) as client,
        archiver(server_process.url, tmp_path / "archive", "s", settings) as job,
    ):
        for _ in range(14):
            client.publish_many("s", [b"x"] * 5)
            assert job.step() is not None
        newest = history.newest()
        assert newest.generation >= 2 and len(newest.files) <= 6
        assert clean(history, 0) == (0, 0, 0), "all of it is too young"
        cleaned = clean(history, 0, young_ms=0, in_flight_ms=0)
        assert cleaned.versions == newest.version - 10 and cleaned.files > 0
        assert history.versions() == list(range(newest.version - 9, newest.version + 1))
        assert read_archived(history).equals(read_stream(client, "s", 1, 70))
        client.publish_many("s", [b"x"] * 5)
        assert job.step() is not None
