"""Programs whose system calls are recorded (tests/servers/power.py). Each makes files of one kind in a
folder, and marks what it relies on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.servers.power import mark
from tests.servers.stream_server import ServerProcess

from qanat.events import durable
from qanat.events.position import Position
from qanat.operate.cuts import Cuts
from qanat.operate.file import Deployment, Region
from qanat.operate.home import Home


def journal(root: str) -> None:
    """Written, shortened, opened again."""
    from qanat.runtime.journal import Journal

    path = Path(root, "data", "journals", "m.journal")
    number = 0
    for _ in range(3):
        opened = Journal(path, compact=lambda records: records[-2:], growth_bytes=400)
        for _ in range(12):
            number += 1
            opened.write([b"%d" % number, b"x" * 20])
            mark(f"{number}")
        opened.close()


def latest(records: list[bytes]) -> int:
    return max((int(each) for each in records if each.isdigit()), default=0)


def careless(root: str) -> None:
    """What must be found: each of these forgets one of the three things to sync."""
    for number in range(1, 3):
        fresh = Path(root, "fresh")
        fresh.write_text(f"{number}")
        os.replace(fresh, Path(root, "bytes"))
        mark(f"bytes {number}")
        durable.written(Path(root, "name"), b"%d" % number)
        mark(f"name {number}")
        Path(root, "folder").mkdir(exist_ok=True)
        durable.replace(Path(root, "folder", "x"), b"%d" % number)
        mark(f"folder {number}")


def careful(root: Path) -> dict[str, int]:
    found = {}
    for name, file in (("bytes", "bytes"), ("name", "name"), ("folder", "folder/x")):
        path = root / file
        found[name] = int(path.read_text() or "0") if path.exists() else 0
    return found


def deployment(root: str) -> None:
    """What `up`, `apply`, `link` and `kill` write down of a deployment."""
    home = Home(Path(root, "state", "shop"))
    home.make()
    for number in range(1, 5):
        home.deployment = Deployment(regions={f"r{each}": Region() for each in range(number)})
        mark(f"deployment {number}")
        home.ports = {f"r{each}": 7000 + each for each in range(number)}
        mark(f"ports {number}")
        home.held = [f"r{each}" for each in range(number)]
        mark(f"held {number}")
        Cuts(frozenset((f"r{each}", "x") for each in range(number))).save(home.cuts_file)
        mark(f"cuts {number}")


def deployed(root: Path) -> dict[str, int]:
    home = Home(root / "state" / "shop")
    found = home.deployment
    return {
        "deployment": 0 if found is None else len(found.regions),
        "ports": len(home.ports),
        "held": len(home.held),
        "cuts": len(Cuts.load(home.cuts_file).pairs),
    }


def ingest(root: str) -> None:
    """What a pipeline remembers beside Spark's checkpoints, and its dead letters."""
    from qanat.pipeline.ingest.dead_letters import Letter, folder_of, write
    from qanat.pipeline.ingest.state import Published, Remembered, State

    state = State(Path(root, "pipeline"))
    for number in range(1, 5):
        state.remember({f"s{each}": Remembered("shop", "0:0", "") for each in range(number)})
        mark(f"agreement {number}")
        Published("", {f"s{each}": "1:0" for each in range(number)}).write(state.published("shop"))
        mark(f"published {number}")
        write(
            folder_of(state.folder, "shop"),
            [Letter(Position(number, 0), "decode", "bad", "raw", b"?")],
        )
        mark(f"letters {number}")


def ingested(root: Path) -> dict[str, int]:
    from qanat.pipeline.ingest.dead_letters import read
    from qanat.pipeline.ingest.state import Published, State

    state = State(root / "pipeline")
    return {
        "agreement": len(state.remembered()),
        "published": len(Published.read(state.published("shop"), "")),
        "letters": len(read(state.folder, "shop")),
    }


def archive(root: str) -> None:
    """A stream's events, archived in several commits and merged; the stream itself is elsewhere."""
    import tempfile

    import msgspec
    from tests.integration.archiving import QUICK, archive_all

    from qanat.client import Client

    settings = msgspec.structs.replace(QUICK, small_files=3, batch_rows=10)
    with tempfile.TemporaryDirectory() as elsewhere:
        server = ServerProcess(Path(elsewhere)).start("--set", "log.mode=memory")
        try:
            with Client(server.url) as client:
                for number in range(1, 6):
                    client.publish_many("s", [b"%d" % each for each in range(10)])
                    archive_all(server.url, Path(root, "archive"), "s", settings)
                    mark(f"{number * 10}")
        finally:
            server.end()


def archived(root: Path) -> int:
    """The last event that the archive says it has, if it can be read."""
    from tests.integration.archiving import read_archived

    from qanat.pipeline.archive.errors import NoArchive
    from qanat.pipeline.archive.history import History
    from qanat.pipeline.archive.storage import LocalStorage

    history = History(LocalStorage(str(root / "archive")), "s")
    try:
        complete = history.newest().complete()
    except NoArchive:
        return 0
    rows = len(read_archived(history))
    assert complete in ((), ((1, rows),))
    return rows


def server(root: str) -> None:
    """A server's streams, in small segments, with garbage collected; killed and started again in the
    middle."""
    process = ServerProcess(Path(root, "data"))
    try:
        for life in range(2):
            process.start("--set", "log.segment_bytes=65536")
            asyncio.run(_publish(process.url, life))
            process.kill() if life == 0 else process.stop()
    finally:
        process.end()


async def _publish(url: str, life: int) -> None:
    from qanat.client import AsyncClient

    async with AsyncClient(url) as client:
        for number in range(24):
            stream = f"s{number % 2}"
            last = await client.publish(stream, b"%d" % number + bytes(9000))
            mark(f"{stream} {last}")


def served(root: Path) -> dict[str, int]:
    """As a server that starts finds its streams."""
    return asyncio.run(_served(root))


async def _served(root: Path) -> dict[str, int]:
    from concurrent.futures import ThreadPoolExecutor

    from qanat.log import LogConfig
    from qanat.log.reader import Chunk
    from qanat.serving.stream_registry import StreamRegistry

    found = {"s0": 0, "s1": 0}
    with ThreadPoolExecutor(1) as pool:
        registry = StreamRegistry(str(root / "data"), LogConfig(segment_bytes=65536), {}, 10, pool)
        try:
            registry.open_all()
            assert not any("what counts is" in note for note in registry.notes), "a power cut is no damage"
            for name, stream in registry.streams.items():
                found[name], at = stream.log.next - 1, 1
                while at <= found[name]:
                    chunk = stream.log.read(at, 1 << 30, upto=found[name])
                    assert isinstance(chunk, Chunk)
                    at = max(batch.last for batch in chunk.batches()) + 1
        finally:
            await registry.close()
    return found
