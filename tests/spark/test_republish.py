"""Archived events published again into another stream: exactly once, killed or not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.archiving import archive_all, read_stream
from tests.servers.stream_server import ServerProcess

from qanat.cli.main import main
from qanat.client import Client
from qanat.events.errors import LocalError
from qanat.pipeline.archive.errors import NotArchived
from qanat.pipeline.replay import republish
from qanat.pipeline.replay.republish import Republished, Republisher
from qanat.pipeline.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.paper("D6")
SETTINGS = ReplaySettings(batch_bytes=4096)


def rows_of(client: Client, stream: str) -> list[tuple[Any, ...]]:
    """What of a stream's rows stays the same when they are published again."""
    table = read_stream(client, stream, 1, client.look(stream).readable)
    return [
        tuple(row[name] for name in ("kind", "key", "time", "payload", "attributes", "types"))
        for row in table.to_pylist()
    ]


@pytest.fixture(params=["by Spark", "here"])
def reader(request: pytest.FixtureRequest) -> SparkSession | None:
    """Whoever reads the archive: the promise is one."""
    return request.getfixturevalue("spark") if request.param == "by Spark" else None


def until_left(job: Callable[[], Republisher]) -> Iterator[Republished]:
    """Every second part is the last one of its job: the next job goes on."""
    more = True
    while more:
        more = False
        for number, part in enumerate(job().run()):
            yield part
            more = number == 1
            if more:
                break


def test_a_stream_is_published_again_exactly_once(
    reader: SparkSession | None,
    server_process: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job is left in the middle, again and again, and the server killed; each time another one goes
    on."""
    monkeypatch.setattr(republish, "FLYING_BYTES", 20_000)
    server_process.start()
    with Client(server_process.url) as client:
        for part in range(3):
            numbers = range(part * 400, part * 400 + 400)
            client.publish_many(
                "s",
                [b"%50d" % n for n in numbers],
                keys=[b"k%d" % (n % 9) for n in numbers],
                attributes={"n": list(numbers)},
            )
            client.publish("s", b"", key=b"k1", collects="same key")
        archive_all(server_process.url, tmp_path, "s")
        expected, parts = rows_of(client, "s"), 0

        def job() -> Republisher:
            return Republisher(reader, str(tmp_path), "s", "again", url=server_process.url, settings=SETTINGS)

        for parts, _ in enumerate(until_left(job), 1):
            if parts == 3:
                server_process.kill()
                server_process.start()
        assert parts >= 4
        assert rows_of(client, "again") == expected
        assert list(job().run()) == [], "all of it is there"
        seqs = read_stream(client, "again", 1, 1203)["source"].to_pylist()
        assert [row["sequence"] for row in seqs] == list(range(1, 1204))


def test_a_part_of_it_with_a_filter(
    reader: SparkSession | None, server_process: ServerProcess, tmp_path: Path
) -> None:
    server_process.start()
    with Client(server_process.url) as client:
        client.publish_many(
            "filtered", [b"%d" % n for n in range(1, 301)], attributes={"n": list(range(1, 301))}
        )
        client.publish("filtered", b"", collects="upto 7")
        archive_all(server_process.url, tmp_path, "filtered")
        choice: dict[str, Any] = {"url": server_process.url, "where": "n in 50..60", "first": 11}
        with pytest.raises(LocalError, match="GC event 301 collects 'upto 7'"):
            list(Republisher(reader, str(tmp_path), "filtered", "few", **choice).run())
        for last in (55, 301):  # the second goes on behind the first
            list(
                Republisher(reader, str(tmp_path), "filtered", "few", last=last, skip_gc=True, **choice).run()
            )
        assert [row[3] for row in rows_of(client, "few")] == [b"%d" % n for n in range(50, 61)]
        for wrong, match in ((302, "not all of 11 to 302"), (5, "nothing")):
            with pytest.raises((NotArchived, LocalError), match=match):
                Republisher(reader, str(tmp_path), "filtered", "few", last=wrong, **choice)
        with pytest.raises(LocalError, match="into itself"):
            Republisher(reader, str(tmp_path), "filtered", "filtered")


def test_the_command(
    reader: SparkSession | None,
    shared_server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rate is a byte per second, until its file says something else and it is told to look."""
    config = tmp_path / "job.toml"
    config.write_text("[replay]\nrate_bytes_per_s = 1\nbatch_bytes = 4096\n")
    with Client(shared_server.url) as client:
        client.publish_many("limited", [b"%100d" % n for n in range(200)])
        archive_all(shared_server.url, tmp_path / "archive", "limited")
    send = Republisher._send

    def hurried(job: Republisher, *rest: Any) -> Any:
        done = send(job, *rest)
        config.write_text("[replay]\nbatch_bytes = 4096\n")
        os.kill(os.getpid(), signal.SIGHUP)
        return done

    monkeypatch.setattr(Republisher, "_send", hurried)
    before = signal.getsignal(signal.SIGHUP)
    words = [
        "replay",
        str(tmp_path / "archive"),
        "limited",
        "--into",
        "unlimited",
        "--url",
        shared_server.url,
    ]
    try:
        assert main([*words, "--config", str(config), "--json"]) == 0
        assert sum(json.loads(line)["events"] for line in capsys.readouterr().out.splitlines()) == 200
        assert main(words) == 0
        assert "published 0 new events" in capsys.readouterr().out
    finally:
        signal.signal(signal.SIGHUP, before)
