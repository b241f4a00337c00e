"""A subscriber that begins further back than the server keeps, at a real server that drops and is killed
meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.archiving import QUICK, archive_all
from tests.waiting import wait_until

from qanat.cli.main import main
from qanat.client import Client, Event, EventsLost, Kind
from qanat.events.event import events
from qanat.pipeline.archive.errors import ArchiveDamaged, NoArchive, StreamChanged
from qanat.pipeline.replay.settings import ReplaySettings
from qanat.pipeline.replay.subscription import Replay

pytestmark = pytest.mark.paper("D6")

SHORT = """\
[stream.short]
segment_bytes = 65536
retain_bytes = 131072
"""
SETTINGS = ReplaySettings(handover_rows=10, batch_bytes=10_000)


@pytest.fixture
def short(server_process: Any, tmp_path: Path) -> Any:
    """A server whose stream `short` keeps some 130 events of 1,000 bytes."""
    file = tmp_path / "server.toml"
    file.write_text(SHORT)

    def start() -> None:
        server_process.start("--config", str(file), "--set", "streams.collect_ms=20")

    server_process.again = start
    start()
    return server_process


def publish(client: Client, count: int) -> None:
    at = client.look("short").readable if count else 0
    client.publish_many(
        "short",
        [b"%1000d" % (at + i + 1) for i in range(count)],
        attributes=[{"odd": i % 2} for i in range(count)],
    )


def flood(client: Client, archive: Callable[[], object] = lambda: None) -> None:
    """Publishes, and archives, until the server has dropped something more."""
    first = client.look("short").first

    def dropped() -> bool:
        publish(client, 40)
        archive()
        return client.look("short").first > first

    wait_until(dropped, every_s=0.02)


def read(source: Replay, count: int) -> list[Event]:
    found: list[Event] = []
    while len(found) < count:
        found += [event for batch in source.take(timeout_s=60) for event in events(batch)]
    return found


def test_from_the_archive_to_the_live_stream_and_back(short: Any, tmp_path: Path) -> None:
    """The server drops what is to come, again and again, and is killed in the middle: the archive has it."""
    archive = tmp_path / "archive"

    def keep() -> None:
        archive_all(short.url, archive, "short")

    with Client(short.url) as client:
        publish(client, 40)
        with pytest.raises(NoArchive):
            Replay(client, str(archive), "short", start=1)
        flood(client, keep)
        with Replay(client, str(archive), "short", start=1, settings=SETTINGS) as source:
            found = read(source, 5)
            assert source.way == "archive"
            short.kill()
            short.again()
            found += read(source, client.look("short").readable - len(found))
            publish(client, 30)
            found += read(source, 30)
            assert source.way == "server"
            keep()
            for _ in range(2):  # past the reader, which takes nothing meanwhile; then while it reads
                flood(client, keep)
                found += read(source, 20)
            found += read(source, client.look("short").readable - len(found))
        assert [event.seq for event in found] == list(range(1, client.look("short").readable + 1))
        assert all(int(event.payload) == event.seq for event in found)


def test_what_nobody_has_is_told_exactly(short: Any, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with Client(short.url) as client:
        publish(client, 20)
        archive_all(short.url, archive, "short")
        flood(client)
        end, first = client.look("short").readable, client.look("short").first
        accounted: list[int] = []
        lost: list[int] = []
        with Replay(client, str(archive), "short", start=11, settings=SETTINGS) as source:
            while len(accounted) < end - 10:
                try:
                    accounted += [event.seq for event in read(source, 1)]
                except EventsLost as gone:
                    lost += range(gone.first, gone.last + 1)
                    accounted += range(gone.first, gone.last + 1)
        assert accounted == list(range(11, end + 1))
        assert lost == list(range(21, lost[-1] + 1))
        assert first <= lost[-1] + 1 <= client.look("short").first  # more may be collected meanwhile


def test_filters_and_starts_mean_the_same_in_both_halves(short: Any, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    settings = msgspec.structs.replace(QUICK, small_files=2)
    with Client(short.url) as client:
        publish(client, 40)
        archive_all(short.url, archive, "short", settings)
        middle = datetime.now(UTC)
        publish(client, 40)
        client.publish("short", b"%1000d" % 81, collects="upto 3")
        flood(client, lambda: archive_all(short.url, archive, "short", settings))
        end = client.look("short").readable
        with Replay(
            client, str(archive), "short", start="earliest", where="odd = 1", settings=SETTINGS
        ) as source:
            found: list[Event] = []
            while source.next <= end:
                found += [event for batch in source.take(timeout_s=1) for event in events(batch)]
        expected = [seq for seq in range(1, end + 1) if seq == 81 or seq % 2 == (seq > 81)]
        seqs = [event.seq for event in found if event.kind is not Kind.TOMBSTONE]
        assert seqs == expected
        with Replay(client, str(archive), "short", start=middle, settings=SETTINGS) as source:
            assert read(source, 1)[0].seq == 41
        late = datetime.now(UTC) + timedelta(hours=1)
        for start, following in (("latest", end + 1), (late, end + 1), (end, end)):
            with Replay(client, str(archive), "short", start=start, settings=SETTINGS) as source:
                assert source.next == following


def test_a_rate_is_set_and_changed(short: Any, tmp_path: Path) -> None:
    """With a rate of a byte per second nothing comes after the first batch, until the rate is changed."""
    archive = tmp_path / "archive"
    with Client(short.url) as client:
        publish(client, 100)
        archive_all(short.url, archive, "short")
        settings = msgspec.structs.replace(SETTINGS, rate_bytes_per_s=1)
        with Replay(client, str(archive), "short", start=1, settings=settings) as source:
            (batch,) = source.take()
            assert source.take(timeout_s=0.3) == [] and source.next == batch.last + 1
            source.rate = 0
            assert read(source, 100 - batch.count)[-1].seq == 100


def test_an_archive_that_is_damaged_or_of_another_stream_is_not_replayed(short: Any, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with Client(short.url) as client:
        publish(client, 60)
        manifest = archive_all(short.url, archive, "short", msgspec.structs.replace(QUICK, range_rows=1000))
        file = archive / "stream=short" / manifest.files[0].path
        good = file.read_bytes()
        file.write_bytes(good[:300] + bytes(600) + good[900:])  # one byte may be of what no reader needs
        with Replay(client, str(archive), "short", start=1, settings=SETTINGS) as source:
            with pytest.raises(ArchiveDamaged, match="holds 1 to 60, cannot be read"):
                source.take()
        file.unlink()
        with Replay(client, str(archive), "short", start=1, settings=SETTINGS) as source:
            with pytest.raises(ArchiveDamaged, match="is missing"):
                source.take()
        client.publish_many("other", [b"x"] * 100)
        (archive / "stream=short").rename(archive / "stream=other")
        for path in (archive / "stream=other" / "_manifest").iterdir():
            path.unlink()
        with pytest.raises(ArchiveDamaged, match="was committed, and the newest that is there is 0"):
            Replay(client, str(archive), "other")
        for path in (archive / "stream=other" / "_committed").iterdir():
            path.unlink()
        with pytest.raises(NoArchive):
            Replay(client, str(archive), "other")
    short.kill()
    short.data.rename(tmp_path / "former")
    short.again()
    with Client(short.url) as client:
        publish(client, 70)
        archive_all(short.url, tmp_path / "second", "short")
    short.kill()
    short.data.rename(tmp_path / "second-data")
    (tmp_path / "former").rename(short.data)
    short.again()
    with Client(short.url) as client, pytest.raises(StreamChanged, match="made anew"):
        Replay(client, str(tmp_path / "second"), "short")


def test_the_command(short: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = str(tmp_path / "archive")
    with Client(short.url) as client:
        publish(client, 20)
        archive_all(short.url, tmp_path / "archive", "short")
        flood(client, lambda: archive_all(short.url, tmp_path / "archive", "short"))
        end = client.look("short").readable
    words = ["sub", "short", "--url", short.url, "--from", "1", "--until-end", "--json"]
    assert main([*words, "--archive", archive, "--rate", "100M"]) == 0
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == list(
        range(1, end + 1)
    )
    assert main([*words, "--rate", "1k"]) == 2
    assert "--archive" in capsys.readouterr().err
