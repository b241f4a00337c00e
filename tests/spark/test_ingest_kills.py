"""Whatever is killed, and whenever: the archive has what the stream has, and the stream has what was written
to the datastore."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.integration.feeding import PATIENT, next_of
from tests.rotation import few, turn
from tests.servers.rocksdb import RocksProcess, rocks_process
from tests.servers.stream_server import ServerProcess
from tests.spark.delivering import LONG_S, audited, proven, recorded
from tests.spark.ingesting import in_log, in_stream
from tests.spark.killing import PipelineProcess, pipeline_file, run_command
from tests.waiting import wait_until

from qanat.capture.updates import Update
from qanat.client import Client
from qanat.pipeline.archive.check import check_files
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import Range
from qanat.pipeline.archive.storage import storage_of
from qanat.pipeline.columns import arrow_of

pytestmark = pytest.mark.slow
ROUNDS, WORKERS = few(10, rarely=2), few(2, rarely=1)
OTHERS = {
    "planner": few(5, rarely=1),
    "server": few(4, rarely=1),
    "driver": few(1, rarely=turn() % 2),
    "java": few(1, rarely=1 - turn() % 2),
}
"""Kills besides the workers in each round: 31 in all, or 5. Cheap ones are many: a Spark that is started anew
takes as long as ten of them."""
STREAMS = ("store", "users-0", "users-1")
Row = dict[str, Any]


def kills(rng: random.Random) -> Iterator[list[str]]:
    """What is killed in each round, in that order."""
    rounds = [["worker"] * WORKERS for _ in range(ROUNDS)]
    for kind, count in OTHERS.items():
        for at in rng.sample(range(ROUNDS), count):
            rounds[at].append(kind)
    for kinds in rounds:
        rng.shuffle(kinds)
        yield kinds


def writes(rng: random.Random, number: int) -> list[list[tuple[Any, ...]]]:
    """Transactions of one to three puts and deletes."""

    def one(at: int) -> tuple[Any, ...]:
        key = b"%s/%d" % (rng.choice([b"user", b"item"]), rng.randrange(500))
        if rng.random() < 0.1:
            return "delete", "default", key
        return "put", "default", key, b"%d.%d" % (number, at)

    return [[one(at) for _ in range(rng.randrange(1, 4))] for at in range(100)]


class Killing:
    """A pipeline, its server and its datastore, and who is next."""

    def __init__(
        self, rng: random.Random, pipeline: PipelineProcess, server: ServerProcess, database: RocksProcess
    ) -> None:
        self._rng, self._pipeline, self._server, self._database = rng, pipeline, server, database
        self.count = 0

    def round(self, number: int, kinds: list[str], watching: Client) -> None:
        """Writes, and kills in the midst of what is made of it."""
        enough = next_of(watching, "store") + self._rng.randrange(1, 150)
        self._database.do("write", writes(self._rng, number))

        def further() -> bool:
            self._pipeline.revive()
            return next_of(watching, "store") >= enough

        wait_until(further, LONG_S, every_s=0.02, say=self._pipeline.said)
        for kind in kinds:
            self._kill(kind)
            self.count += 1

    def _kill(self, kind: str) -> None:
        if kind == "server":
            self._server.kill()
            self._server.start()
            return
        found: list[int] = []

        def there() -> bool:
            self._pipeline.revive()
            found[:] = self._pipeline.victims()[kind]
            if not found:  # a Spark that has nothing to do may have no worker: give it something
                self._database.do("write", [[("put", "default", b"item/more", b"more")]])
            return bool(found)

        wait_until(there, LONG_S, every_s=0.05, say=self._pipeline.said)
        self._pipeline.kill(kind, self._rng.choice(found))


def published(url: str, stream: str) -> list[Row]:
    rows: list[Row] = []
    with Client(url) as client, client.subscribe(stream, start="earliest") as reading:
        while reading.next < reading.end:
            for batch in reading.take():
                rows += arrow_of(stream, batch).to_pylist()
    return rows


def archived(folder: Path, stream: str) -> list[Row]:
    """The rows of the files that the manifest names; each file is as it was written, and together they are
    complete."""
    history = History(storage_of(str(folder)), stream)
    manifest = history.existing()
    assert all(not wrong for _, wrong in check_files(history))
    rows: list[Row] = []
    for file in sorted(manifest.files, key=lambda file: file.first):
        with history.storage.open(file.path) as opened:
            rows += [{"stream": stream, **row} for row in pq.read_table(opened).to_pylist()]
    assert manifest.complete() == (Range(1, len(rows)),) and not manifest.lost
    return rows


def is_archived(folder: Path, ends: dict[str, int]) -> bool:
    return all(History(storage_of(str(folder)), stream).newest().next == end for stream, end in ends.items())


def contents(updates: list[Update]) -> dict[bytes, bytes]:
    """What a database has that did all of this."""
    rows: dict[bytes, bytes] = {}
    for one in updates:
        if one.after is not None:
            rows[bytes(one.after["key"])] = bytes(one.after["value"])
        elif one.before is not None:
            rows.pop(bytes(one.before["key"]), None)
    return rows


@pytest.mark.rotating
@pytest.mark.paper("D2", "D4")
def test_archive_and_stream_have_what_was_written_whatever_is_killed(
    tmp_path: Path, server_process: ServerProcess
) -> None:
    rng = random.Random(20261116 + turn())
    server, records = server_process.start(), tmp_path / "records"
    pipeline, archive = PipelineProcess(pipeline_file(tmp_path, server.url)), tmp_path / "archive"
    with pipeline, rocks_process(tmp_path / "store", wal_ttl_seconds=36000) as database:
        pipeline.start()
        killing = Killing(rng, pipeline, server, database)
        with Client(server.url, settings=PATIENT) as watching:
            rounds = enumerate(kills(rng))
            killing.round(*next(rounds), watching)
            with recorded(server.url, "store", records) as ends:
                for number, kinds in rounds:
                    killing.round(number, kinds, watching)
                assert killing.count == ROUNDS * WORKERS + sum(OTHERS.values())
                written = in_log(database.url)

                def whole() -> bool:
                    pipeline.revive()
                    found = {stream: next_of(watching, stream) for stream in STREAMS}
                    return found["store"] > len(written) and is_archived(archive, found)

                wait_until(whole, LONG_S, every_s=0.1, say=pipeline.said)
                ends.append(len(written) + 1)
        assert run_command("stop", pipeline.file).returncode == 0
        pipeline.gone()
        assert run_command("dead-letters", pipeline.file).stdout == ""
        _compare(written, server.url, archive)
        assert contents(in_stream(server.url, "store")) == {
            key: value for (_, key), value in database.do("rows").items()
        }
    (found,) = proven(audited(records, archive)).values()
    assert found[1] == len(written)


def _compare(written: list[Update], url: str, archive: Path) -> None:
    assert in_stream(url, "store") == written
    for stream in STREAMS:
        assert archived(archive, stream) == published(url, stream)
    users = {shard: in_stream(url, f"users-{shard}") for shard in (0, 1)}
    of_users = [one for one in written if (one.after or one.before or {})["key"].startswith(b"user")]
    assert sorted([*users[0], *users[1]], key=lambda one: one.position) == of_users
    for mine in users.values():
        assert mine == sorted(mine, key=lambda one: one.position)
