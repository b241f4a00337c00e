"""Archives, what waits to be published from Spark, recordings of what was delivered. Their files, and how
they are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
from tests.integration.archiving import QUICK, archive_all, read_archived
from tests.integration.damaging import (
    AWAY,
    LOST,
    NOTHING,
    READER,
    REFUSED,
    THREE,
    Kind,
    Outcome,
    World,
    judged,
    told,
)
from tests.integration.damaging_states import twins

from qanat.client import AsyncClient, Client
from qanat.client.record_format import CorruptRecord
from qanat.events.errors import QanatError
from qanat.pipeline.archive.check import check_files
from qanat.pipeline.archive.errors import ArchiveDamaged
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.audit.deliveries import _part
from qanat.pipeline.audit.subscribers import gather
from qanat.pipeline.sink import publishing, staging
from qanat.pipeline.sink.publishing import Publication
from qanat.pipeline.sink.staging import Piece, Staging, lay_down
from qanat.pipeline.source import clients
from qanat.runtime.config import load
from qanat.serving.server import StreamServer
from qanat.serving.settings import StreamServerSettings


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """A server in a thread of this process; its URL."""
    flags = {"node.listen": "127.0.0.1:0", "node.data": str(data), "admin.enabled": False}
    loop, server = asyncio.new_event_loop(), list[StreamServer]()

    async def start() -> str:
        server.append(StreamServer(partial(load, StreamServerSettings, flags=flags)))
        await server[0].on_start()
        return server[0].url

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        url = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield url
        finally:
            clients.forget(url)
            asyncio.run_coroutine_threadsafe(server[0].on_stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class ArchiveWorld(World):
    name = "an archive"
    kinds: tuple[Kind, ...] = (
        Kind("`stream=S/day=D/*.parquet`", r"stream=s/day=[\d-]+/\d+-\d+\..*\.parquet", 0, THREE),
        Kind(
            "`stream=S/_manifest/N.json`, the newest", r"stream=s/_manifest/\d+\.json", -1, THREE, before=-2
        ),
        Kind("`stream=S/_manifest/N.json`, an earlier one", r"stream=s/_manifest/\d+\.json", 0),
        Kind("`stream=S/_committed/N`", r"stream=s/_committed/\d+"),
        Kind("`stream=S/_staging/*`", r"stream=s/_staging/.*"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        settings = msgspec.structs.replace(QUICK, batch_rows=10)
        with serving(folder.parent / "server") as url, Client(url) as client:
            for number in (1, 2, 3):
                client.publish_many("s", [b"%d" % each for each in range(10)])
                archive_all(url, folder, "s", settings)
                if number == 2:
                    older()
        waste = folder / "stream=s" / "_staging" / "append-0-x"
        waste.mkdir(parents=True)
        (waste / "0.parquet").write_bytes(b"half")

    def look(self, folder: Path) -> Outcome:
        history = History(LocalStorage(str(folder)), "s")
        try:
            manifest = history.newest()
            for file, wrong in check_files(history):
                if wrong:
                    return Outcome(READER, f"`archive check`: {file.path.rpartition('/')[2]}: {wrong}")
            found = read_archived(history).column("payload").to_pylist()
        except ArchiveDamaged as error:
            return Outcome(REFUSED, str(error))
        whole = manifest.complete() == ((1, 30),) and found == [b"%d" % each for each in range(10)] * 3
        return judged(whole, [])


class SinkWorld(World):
    """A micro-batch of Spark's was broken off in the midst of being published."""

    name = "Spark's sink"
    kinds: tuple[Kind, ...] = (
        Kind("`SOURCE/N/plan.json`", r"sink/q/\d+/plan\.json", -1, THREE),
        Kind("`SOURCE/N/*.batches`", r"sink/q/\d+/.*\.batches", 0, THREE),
        *twins("SOURCE/reached.json", file="sink/q/reached.json"),
        Kind("`token`", "sink/token"),
        Kind("", "server/.*"),
        Kind("", r"sink/\..*"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        with serving(folder / "server") as url, self._small():
            for batch in (1, 2):
                self._publish(url, folder, batch)
                if batch == 1:
                    older()
            self._publish(url, folder, 3, flights=3)

    @staticmethod
    @contextmanager
    def _small() -> Iterator[None]:
        """Few rows are many batches, and all of them lie in files."""
        with (
            mock.patch.object(staging, "_BATCH_BYTES", 400),
            mock.patch.object(staging, "_INLINE_BYTES", 0),
            mock.patch.object(publishing, "_WHOLE_BYTES", 0),
        ):
            yield

    @staticmethod
    def _rows(batch: int) -> list[bytes]:
        return [b"%010d" % (batch * 1000 + each) for each in range(200)]

    def _pieces(self, home: Staging, batch: int) -> list[Piece]:
        rows, pieces = self._rows(batch), list[Piece]()
        for number in range(2):
            mine = pa.record_batch({"payload": rows[number * 100 : number * 100 + 100]})
            pieces += lay_down(iter([mine]), "s", "q", home.of("q", batch), f"{number:06}", 7)
        return pieces

    def _publish(self, url: str, folder: Path, batch: int, flights: int = 1 << 30) -> None:
        home = Staging.prepare(str(folder / "sink"))
        pieces = self._pieces(home, batch)
        publication = Publication(url, "q", batch, home, "micro-batch", patience=3.0)
        made = publication._flights

        def few(mine: Any, have: int) -> Iterator[Any]:
            for number, flight in enumerate(made(mine, have)):
                if number == flights:
                    raise Killed
                yield flight

        with mock.patch.object(publication, "_flights", few):
            try:
                publication.publish(pieces)
            except Killed:
                pass

    def look(self, folder: Path) -> Outcome:
        with told() as said, serving(folder / "server") as url, self._small():
            home = Staging.prepare(str(folder / "sink"))
            publication = Publication(url, "q", 3, home, "micro-batch", patience=3.0)
            try:
                publication.publish(self._pieces(home, 3))  # as Spark does it: computed again
            except QanatError as error:
                return Outcome(REFUSED, str(error))
            with Client(url) as client:
                found: list[bytes] = []
                subscription = client.read("s", 1, client.look("s").readable)
                while batches := subscription.take():
                    found += [each for batch in batches for each in batch.payloads().to_pylist()]
        return judged(found == [row for batch in (1, 2, 3) for row in self._rows(batch)], said)


class Killed(BaseException):
    """The driver dies."""


class DeliveriesWorld(World):
    name = "recorded deliveries"
    kinds: tuple[Kind, ...] = (Kind("`*.record`", r".*\.record", -1, THREE),)

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        async def take(url: str, last: int) -> None:
            async with AsyncClient(url, name="reader", record=folder) as client, asyncio.timeout(20):
                subscription = client.subscribe("s", start=1)
                async for event in subscription:
                    if event.seq == last:
                        break
                await subscription.close()

        with serving(folder.parent / "server") as url:
            with Client(url) as client:
                for each in range(40):
                    client.publish_many("s", [b"%d" % each])
            asyncio.run(take(url, 40))
        older()

    def look(self, folder: Path) -> Outcome:
        try:
            parts = [_part(str(path), path.read_bytes()) for path in sorted(folder.glob("*.record"))]
        except CorruptRecord as error:
            return Outcome(AWAY, f"not proven: {error}")
        subscribers, broken = gather(part for part in parts if part is not None)
        if broken:
            return Outcome(AWAY, f"not proven: {broken[0].sentence}")
        if not subscribers:
            return Outcome(REFUSED, "there are no recordings")
        (run,) = subscribers[0].runs
        if run.ended:
            return judged(run.reach == 40, [])
        return Outcome("is as of a subscriber that was killed, proven up to where it ends", "")


__all__ = ["LOST", "NOTHING", "ArchiveWorld", "DeliveriesWorld", "SinkWorld"]
