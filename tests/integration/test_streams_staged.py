"""Publishers on the server's own machine lay large publishes down in its log; whatever goes wrong with that,
each event is stored once."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings
from qanat.client.encoded import Laid, dense_flight, publish_flights
from qanat.client.errors import PublishRefused
from qanat.client.staging import HEAD_BYTES, StagingFolder
from qanat.events.batch import Batch, stream_id
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.runtime.settings import TransportSettings
from qanat.serving import hosted_stream
from qanat.wire.streams import PUBLISH, LogFolder, Publish, Staging, encode_control

EVENTS, WIDTH = 6_000, 1_000


def rows(first: int = 0, count: int = EVENTS) -> Any:
    """Events that tell their number, in all 6 MB."""
    data = np.zeros((count, WIDTH), np.uint8)
    data[:, :8] = np.arange(first, first + count, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return data


async def check(client: AsyncClient, count: int) -> None:
    """The stream holds the numbers 0.. in order, each once."""
    found = 0
    subscription = client.subscribe("s", start="earliest")
    while found < count:
        for batch in await subscription.take():
            payloads = np.frombuffer(b"".join(batch.payloads().to_pylist()), "<u8")[:: WIDTH // 8]
            assert (payloads == np.arange(found, found + batch.count)).all()
            found += batch.count
    assert found == count


def received_bytes(server: Any) -> int:
    return sum(connection.bytes_in for connection in server.listener.connections)


def left_behind(server: Any) -> list[str]:
    return [name for name in os.listdir(server.registry.get("s").log.folder) if name.endswith(".staged.tmp")]


@pytest.mark.parametrize("mode", ["always", "interval"])
def test_large_publishes_do_not_go_through_the_socket(serving: Any, mode: str) -> None:
    async def work() -> None:
        async with serving(f"log.mode={mode}") as server, AsyncClient(server.url) as client:
            await client.publish_many("s", rows(0, 10))
            before = received_bytes(server)
            assert await client.publish_many("s", rows(10)) == (11, EVENTS + 10)
            await client.publish_many("s", rows(EVENTS + 10, 3 * EVENTS))
            assert received_bytes(server) - before < 10_000
            await client.publish_many("s", rows(4 * EVENTS + 10, 10))
            await check(client, 4 * EVENTS + 20)
            assert left_behind(server) == []

    run(work())


def test_positions_of_a_log_are_kept(serving: Any) -> None:
    async def work() -> None:
        async with serving("log.mode=interval") as server, AsyncClient(server.url, name="log") as client:
            none = np.zeros(EVENTS, np.uint32)
            await client.publish_at("s", rows(0, 10), (np.arange(10) * 3 + 1, none[:10]))
            before = received_bytes(server)
            places = np.arange(10, EVENTS + 10) * 3 + 1
            await client.publish_at("s", rows(10), (places, none))
            assert received_bytes(server) - before < 10_000
            assert await client.position("s") == (places[-1], 0)
            again = await client.publish_at("s", rows(10), (places, none))  # all of it is had
            assert again[0] == 0
            await check(client, EVENTS + 10)
            assert server.registry.get("s").log.position("log") == (places[-1], 0)

    run(work())


def test_batches_that_are_encoded_already_are_laid_down_together(serving: Any) -> None:
    """As Spark's sink publishes; it is told of each batch that the stream has for good."""

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url, name="sink") as client:
            made = [
                Batch.build(stream_id("s"), rows(first, 500), source="sink", position=0)
                for first in range(0, 2 * EVENTS, 500)
            ]
            flights = [
                dense_flight(batch, "sink", 500 * i + 1 + (1 << 32 if i > 20 else 0))  # one of them jumps
                for i, batch in enumerate(made)
            ]
            kept: list[Any] = []
            assert await publish_flights(client, "s", flights[:1], kept.append) == 500
            before = received_bytes(server)
            with pytest.raises(PublishRefused):  # it jumps where the stream expects none
                await publish_flights(client, "s", flights[1:], kept.append)
            assert kept == flights[:21]
            assert received_bytes(server) - before < 2_000_000, "only those behind the jump were sent"
            await check(client, 21 * 500)

    run(work())


def over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the socket that everybody else has."""


def not_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)


def another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that shares the network and not the disk."""
    of = StagingFolder.of

    def elsewhere(found: Staging | None) -> StagingFolder | None:
        folder = found and LogFolder(found.folder.path, found.folder.device, found.folder.inode + 1)
        return of(Staging(folder, found.beginning) if found and folder else None)

    monkeypatch.setattr(StagingFolder, "of", elsewhere)


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)


def another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a client that is root, say, is not for a server that is not."""
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)


@pytest.mark.parametrize("trouble", [over_tcp, not_to_be_written, another_folder, full_disk, another_user])
def test_otherwise_the_bytes_are_sent(
    serving: Any, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], None]
) -> None:
    async def work() -> None:
        transport = TransportSettings(short_ways=trouble is not over_tcp)
        async with (
            serving("log.mode=interval") as server,
            AsyncClient(server.url, transport=transport) as client,
        ):
            trouble(monkeypatch)
            await client.publish_many("s", rows(0, 10))
            await client.publish_many("s", rows(10, 3 * EVENTS))
            assert received_bytes(server) > 3 * EVENTS * WIDTH
            await check(client, 3 * EVENTS + 10)
            assert left_behind(server) == []

    run(work())


def test_what_is_not_answered_is_laid_down_again_and_stored_once(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the file was taken over, before its publisher hears of it."""

    async def work() -> None:
        async with serving("log.mode=interval") as server, AsyncClient(server.url) as client:
            await client.publish_many("s", rows(0, 10))
            log = server.registry.get("s").log
            adopt = log.adopt
            cut: list[str] = []

            def adopt_and_cut(name: str, *latest_us: int) -> Any:
                adopted = adopt(name, *latest_us)
                if not cut:
                    cut.append(name)
                    for connection in list(server.listener.connections):
                        connection.abort("reset", "cut by the test")
                return adopted

            monkeypatch.setattr(log, "adopt", adopt_and_cut)
            await client.publish_many("s", rows(10, 3 * EVENTS))
            assert cut
            await check(client, 3 * EVENTS + 10)
            await until(lambda: left_behind(server) == [])

    run(work())


def test_what_its_publisher_left_behind_is_removed(serving: Any) -> None:
    async def work() -> None:
        async with serving("log.mode=interval") as server:
            client = AsyncClient(server.url)
            await client.ready()
            await client.publish_many("s", rows(0, 10))
            folder = Path(server.registry.get("s").log.folder)
            outbox = client._outboxes["s"]
            assert outbox._staging is not None
            mine = folder / f"{outbox._staging._beginning}99.staged.tmp"
            mine.write_bytes(b"half of it")
            await client.close()
            await until(lambda: left_behind(server) == [])

            mine.write_bytes(b"it had not noticed yet")
            async with AsyncClient(server.url) as another:
                await another.publish_many("s", rows(10, 10))
                assert left_behind(server) == []

    run(work())


@pytest.mark.parametrize(
    "name", ["{}-../secret.staged.tmp", "{}-abc-1.staged.tmp", "{}-x.seg", "manifest", "1-1.staged.tmp"]
)
def test_no_other_file_can_be_named(serving: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async def work() -> None:
        async with serving("log.mode=interval") as server, AsyncClient(server.url) as client:
            await client.publish_many("s", rows(0, 10))
            log = server.registry.get("s").log
            (Path(log.folder) / f"{log.stream:x}-abc-1.staged.tmp").write_bytes(b"another's")
            before = sorted(os.listdir(log.folder))
            outbox = client._outboxes["s"]
            assert outbox._connection is not None and outbox._link is not None
            refusals: list[Any] = []
            monkeypatch.setattr(outbox, "on_refused", refusals.append)
            control = encode_control(
                Publish(outbox._link.expect(outbox), None, name.format(f"{log.stream:x}"))
            )
            outbox._connection.send(PUBLISH, STREAMS_CHANNEL, control, ())
            await until(lambda: refusals)
            assert refusals[0].code in ("not_staged", "no_stream")
            assert sorted(os.listdir(log.folder)) == before and log.next == 11

    run(work())


def test_it_can_be_turned_off(serving: Any) -> None:
    async def work() -> None:
        async with (
            serving("log.mode=interval") as server,
            AsyncClient(server.url, settings=ClientSettings(in_place=False)) as client,
        ):
            await client.publish_many("s", rows(0, 10))
            await client.publish_many("s", rows(10))
            assert received_bytes(server) > EVENTS * WIDTH

    run(work())


def test_a_sync_that_begins_late_and_covers_all_holds_nobody_up(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More comes than may be unsynced, before the disk begins; then one sync covers all of it, and none
    follows that would say so."""

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", rows(0, 10))
            stream = server.registry.get("s")
            sync, begin = stream.log.sync, threading.Event()

            def late() -> int:
                assert begin.wait(60)
                return int(sync())

            monkeypatch.setattr(hosted_stream, "_UNSYNCED_BYTES", 1_000_000)
            monkeypatch.setattr(stream.log, "sync", late)
            publishing = asyncio.create_task(client.publish_many("s", rows(10, 3 * EVENTS)))
            await until(lambda: stream._held)
            begin.set()
            await publishing
            await check(client, 3 * EVENTS + 10)

    run(work())


def laid(path: Path, batches: list[Batch], position: int) -> Laid:
    """A file of batches behind the room for a segment's head, and their flights."""
    path.write_bytes(bytes(HEAD_BYTES) + b"".join(batch.encode() for batch in batches))
    flights = []
    for batch in batches:
        flights.append(dense_flight(batch, "sink", position))
        position += batch.count
    return Laid(str(path), flights)


def nothing(monkeypatch: pytest.MonkeyPatch, log: Any, server: Any) -> None:
    """All is well."""


def another_disk(monkeypatch: pytest.MonkeyPatch, log: Any, server: Any) -> None:
    def link(old: str, new: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)


def no_answer(monkeypatch: pytest.MonkeyPatch, log: Any, server: Any) -> None:
    """The connection breaks when the first file was taken over: what is in it is had, and of the second one a
    copy is laid down."""
    adopt, cut = log.adopt, list[str]()

    def adopt_and_cut(name: str, *latest_us: int) -> Any:
        adopted = adopt(name, *latest_us)
        if not cut:
            cut.append(name)
            for connection in list(server.listener.connections):
                connection.abort("reset", "cut by the test")
        return adopted

    monkeypatch.setattr(log, "adopt", adopt_and_cut)


@pytest.mark.parametrize("trouble", [nothing, another_disk, no_answer])
def test_a_file_that_lies_on_the_log_s_disk_becomes_a_segment_itself(
    serving: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: Callable[..., None]
) -> None:
    async def work() -> None:
        async with serving("log.mode=interval") as server, AsyncClient(server.url, name="sink") as client:
            made = [
                Batch.build(stream_id("s"), rows(first, 500), source="sink", position=0)
                for first in range(0, 2 * EVENTS + 500, 500)
            ]
            await publish_flights(client, "s", [dense_flight(made[0], "sink", 1)])
            log = server.registry.get("s").log
            trouble(monkeypatch, log, server)
            half = EVENTS // 500
            files = [
                laid(tmp_path / "1", made[1 : half + 1], 501),
                laid(tmp_path / "2", made[half + 1 :], EVENTS + 501),
            ]
            inodes = {os.stat(file.path).st_ino for file in files}
            before = received_bytes(server)
            await publish_flights(client, "s", files)
            assert received_bytes(server) - before < 10_000
            await check(client, 2 * EVENTS + 500)
            segments = {entry.inode() for entry in os.scandir(log.folder) if entry.name.endswith(".seg")}
            assert len(inodes & segments) == {nothing: 2, another_disk: 0, no_answer: 1}[trouble]
            await until(lambda: left_behind(server) == [])

    run(work())
