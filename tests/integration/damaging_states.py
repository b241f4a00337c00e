"""What processes write down of themselves: deployments, publishers, pipelines, readers of files. How they
start from it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.integration.damaging import AWAY, REFUSED, THREE, Kind, Outcome, World, judged, plain, told
from tests.servers.rocksdb import batch, database, log_file, put, write_log

from qanat.capture.snapshot import Progress
from qanat.capture.snapshot_feed import load as load_progress
from qanat.capture.snapshot_feed import save as save_progress
from qanat.capture.url import open_reader
from qanat.events.errors import LocalError, QanatError
from qanat.events.position import Position
from qanat.operate.cuts import Cuts
from qanat.operate.file import Deployment, Region
from qanat.operate.home import Home, Supervised
from qanat.operate.other_deployments import leave_note as note_elsewhere
from qanat.operate.process_id import ProcessId
from qanat.operate.publisher_keeper import LOGS, Keeper
from qanat.operate.supervisor import Supervisor
from qanat.pipeline.changes.offsets import Offset, Taken
from qanat.pipeline.changes.rows import SHARDED
from qanat.pipeline.changes.snapshot import Given
from qanat.pipeline.ingest import dead_letters
from qanat.pipeline.ingest.dead_letters import Letter, folder_of
from qanat.pipeline.ingest.live import Live
from qanat.pipeline.ingest.state import Published, Remembered, State
from qanat.pipeline.ingest.trouble import Trouble, troubles
from qanat.publisher.changes import Changes
from qanat.publisher.node import PublisherNode
from qanat.publisher.settings import PublisherSettings
from qanat.replica.settings import StreamSettings
from qanat.runtime.admin_note import leave_note
from qanat.runtime.config import load
from qanat.runtime.folder_lock import lock_folder


def twins(name: str, *, file: str = "") -> tuple[Kind, Kind]:
    """A file that is kept twice."""
    folder, _, last = (file or name).rpartition("/")
    place = f"{folder}/" if folder else ""
    last = last.replace(".", r"\.")
    shown = name if "`" in name else f"`{name}`"
    return Kind(shown, f"{place}{last}"), Kind("its twin", f"{place}\\.{last}\\.twin")


class DeploymentWorld(World):
    name = "a deployment"
    kinds: tuple[Kind, ...] = (
        *twins("deployment.toml"),
        *twins("owners.json"),
        *twins("ports.json"),
        *twins("cuts.json"),
        *twins("held.json"),
        *twins("processes.json"),
        Kind("`nodes/*.toml`", r"nodes/.*\.toml", 0),
        Kind("`supervisor.json`", r"supervisor\.json"),
        Kind("`supervisor.log`, `logs/*.log`", r"supervisor\.log|logs/.*\.log(\.1)?"),
        Kind("`elsewhere-*.txt`", r"state/qanat/elsewhere-.*\.txt"),
        Kind("`lock`", "lock"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        home = Home(folder)
        home.make()
        for number in (1, 2, 3):
            self._write(home, number)
            if number == 1:
                older()

    @staticmethod
    def _write(home: Home, number: int) -> None:
        regions = {f"r{each}": Region() for each in range(number + 1)}
        streams = {f"s{each}": StreamSettings(owner=f"r{each}") for each in range(number + 1)}
        home.deployment = Deployment(regions=regions, streams=streams, first_port=0)
        home.held = [f"r{each}/proxy-1" for each in range(number)]
        home.children = {f"r{number}/proxy-1": ProcessId(2**22 + number, "then")}
        home.supervised = Supervised(ProcessId(2**22, "then"), number, "token")
        Cuts(frozenset((f"r{each}", "r0") for each in range(1, number + 1))).save(home.cuts_file)
        deployment = home.deployment
        assert deployment is not None
        Supervisor(home, deployment)._write_files()
        for log in (home.log_file, home.node_log("r0/proxy-1")):
            with log.open("a") as file:
                file.write(f"line {number}\n")
        note_elsewhere(home, {"XDG_STATE_HOME": str(home.folder / "state")})
        lock = home.lock()
        assert lock is not None
        os.close(lock)

    def look(self, folder: Path) -> Outcome:
        home = Home(folder)
        with told() as said, told("qanat.supervisor") as watched:
            try:
                home.mend()
                deployment = home.deployment
                assert deployment is not None
                right = (
                    list(deployment.regions) == [f"r{each}" for each in range(4)]
                    and home.owners == {f"s{each}": f"r{each}" for each in range(4)}
                    and home.held == [f"r{each}/proxy-1" for each in range(3)]
                    and home.children == {"r3/proxy-1": ProcessId(2**22 + 3, "then")}
                    and Cuts.load(home.cuts_file).pairs == {(f"r{each}", "r0") for each in range(1, 4)}
                    and len(home.ports) > 12
                )
            except LocalError as error:
                return Outcome(REFUSED, str(error))
            supervisor = Supervisor(home, deployment)
            before = home.ports
            node, supervisor._files = "r0/coordinator-1", dict(_node_files(home, deployment))
            supervisor._restore_file(node)
            right = right and home.ports == before
            right = right and home.node_file(node).read_text() == supervisor._files[node]
        watched = [f"{plain(each, folder)} ({home.node_file(node).name})" for each in watched]
        return judged(right, [*said, *watched])


def _node_files(home: Home, deployment: Deployment) -> dict[str, str]:
    from qanat.operate.layout import node_files

    return node_files(deployment, home.ports, home.folder)


class PublisherWorld(World):
    name = "a publisher"
    kinds: tuple[Kind, ...] = (
        Kind("`journals/publisher.journal`", r"data/journals/publisher\.journal", places=THREE),
        Kind("`journals.twins/publisher.journal`", r"data/journals\.twins/publisher\.journal", places=THREE),
        Kind("`journals/publisher.reserve`", r"data/journals/publisher\.reserve"),
        *twins("changes.json", file="data/changes.json"),
        *twins("dataset", file="data/dataset"),
        *twins("sharding", file="data/sharding"),
        *twins("parts", file="data/parts"),
        *twins("began", file="data/began"),
        Kind("`admin.json`", r"data/admin\.json"),
        Kind("`lock`", "data/lock"),
        Kind("", "log/.*"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        self._log(folder, 3)
        asyncio.run(self._life(folder, Changes(publisher={"read_rows": 70})))
        leave_note(folder / "data", "127.0.0.1", 1)
        older()
        self._log(folder, 5)
        asyncio.run(self._life(folder, Changes(publisher={"read_rows": 80})))
        leave_note(folder / "data", "127.0.0.1", 2)
        self._log(folder, 7)

    @staticmethod
    def _log(folder: Path, last: int) -> None:
        write_log(
            database(folder / "log"),
            3,
            log_file([batch(each, put(b"k", b"v")) for each in range(1, last + 1)]),
        )

    @staticmethod
    def _node(folder: Path) -> PublisherNode:
        flags = {
            "node.data": str(folder / "data"),
            "node.listen": "127.0.0.1:0",
            "admin.enabled": False,
            "log.url": f"rocksdb://{folder / 'log'}?dataset=d",
            "applications": {"cache": {"start": "latest"}},
        }
        return PublisherNode(partial(load, PublisherSettings, flags=flags))

    async def _life(self, folder: Path, changes: Changes) -> None:
        node = self._node(folder)
        await node.on_start()
        node.change(changes)
        async with asyncio.timeout(20):
            while not self._scouts(node):
                await asyncio.sleep(0.01)
        await node.on_stop()

    @staticmethod
    def _scouts(node: PublisherNode) -> list[Position]:
        """From where on the application is not to miss anything."""
        assert node.machine is not None
        return [scout.position for scout in node.machine.served["cache"].scouts.values()]

    def look(self, folder: Path) -> Outcome:
        with told("qanat.files", "qanat.runtime", "qanat.publisher") as said:
            return asyncio.run(self._look(folder, said))

    async def _look(self, folder: Path, said: list[str]) -> Outcome:
        try:
            node = self._node(folder)
            await node.on_start()
        except LocalError as error:
            return Outcome(REFUSED, str(error))
        try:
            async with asyncio.timeout(20):
                while not self._scouts(node):
                    await asyncio.sleep(0.01)
            right = self._scouts(node) == [Position(3)] and node.settings.publisher.read_rows == 80
            repaired: Any = node.whole_status()["repaired"]
            return judged(right, [*repaired, *said])
        finally:
            await node.on_stop()


class KeeperWorld(World):
    """The monitor of a machine was killed; what it had started runs on."""

    name = "a machine's monitor"
    kinds: tuple[Kind, ...] = (
        *twins("logs/processes.json", file="logs/processes.json"),
        Kind("`logs/*.log`", r"logs/.*\.log(\.1)?"),
        Kind("`logs/lock`", "logs/lock"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        os.close(lock_folder(folder / LOGS))
        (folder / LOGS / "a.log").write_text("a line\n")
        for pid in (2**22, 2**22 + 1):
            self._write(folder, ProcessId(pid, "then"))
            if pid == 2**22:
                older()

    @staticmethod
    def _write(folder: Path, process: ProcessId) -> None:
        keeper = Keeper(folder, "here")
        keeper._processes.write(json.dumps([["a", {"pid": process.pid, "began": process.began}]]).encode())

    def look(self, folder: Path) -> Outcome:
        found: list[ProcessId] = []

        async def work() -> None:
            keeper, stop = Keeper(folder, "here"), asyncio.Event()
            data = keeper._processes.read()
            found.extend(ProcessId(**one) for _, one in json.loads(data or b"[]"))
            stop.set()
            await keeper.run(1.0, stop, lambda: None)

        with told() as said:
            try:
                asyncio.run(work())
            except LocalError as error:
                return Outcome(REFUSED, str(error))
        return judged(found == [ProcessId(2**22 + 1, "then")], list(dict.fromkeys(said)))


class PipelineWorld(World):
    name = "a pipeline"
    kinds: tuple[Kind, ...] = (
        *twins("agreement.json"),
        *twins("published/SOURCE.json", file="published/shop.json"),
        Kind("`dead-letters/source=SOURCE/*.parquet`", r"dead-letters/source=shop/\d.*\.parquet"),
        *twins("dead-letters/source=SOURCE/_letters.json", file="dead-letters/source=shop/_letters.json"),
        Kind("`dead-letters/source=SOURCE/.lock`", r"dead-letters/source=shop/\.lock"),
        Kind("`status.json`", r"status\.json"),
        Kind("`live/SOURCE.json`", r"live/shop\.json"),
        Kind("`trouble/SOURCE/*.json`", r"trouble/shop/.*\.json"),
        Kind("`lock`", "lock"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        state = State(folder)
        os.close(lock_folder(folder))
        for number in (1, 2, 3):
            state.remember({"shop": Remembered("shop", "0:0", f"mark {number}")})
            Published("mark", {"s": f"{number}:0"}).write(state.published("shop"))
            dead_letters.write(
                folder_of(folder, "shop"),
                [Letter(Position(number), "decode", "bad", "raw", b"?" * 500)],
            )
            state.tell({"pid": number})
            Live(float(number), Position(1), Position(2), {}, {}).write(state.live("shop"))
            trouble = Trouble(state.troubles("shop") / "task.json", 60.0)
            trouble.wait(LocalError(f"trouble {number}"))
            if number == 1:
                older()

    def look(self, folder: Path) -> Outcome:
        state, problems = State(folder), list[str]()
        with told() as said:
            try:
                right = state.remembered() == {
                    "shop": Remembered("shop", "0:0", "mark 3")
                } and Published.read(state.published("shop"), "mark") == {"s": Position(3)}
                letters = dead_letters.read(folder, "shop", problems).num_rows
            except LocalError as error:
                return Outcome(REFUSED, str(error))
            state.status(), Live.load(state.live("shop")), troubles(state.troubles("shop"))
            os.close(lock_folder(folder))
        if problems:
            return Outcome(AWAY, problems[0])
        return judged(right and letters == 3, said)


_START = Offset("d", Position(1), Position(1), None, Taken(("t",), None, 0, 3))
_END = Offset("d", Position(2), Position(1), None, Taken(("t",), ("9",), 10, 4))


def _rows() -> pa.RecordBatch:
    """As a micro-batch of a snapshot has them."""
    return pa.RecordBatch.from_pylist([{"payload": b"%d" % each * 100} for each in range(10)], schema=SHARDED)


class FilesWorld(World):
    """`file:///folder/*`: numbers of files, how far a snapshot is, and what of it waits for Spark."""

    name = "a reader"
    linked = r".*\.jsonl"
    kinds: tuple[Kind, ...] = (
        Kind("`.qanat-files-N/N.json`", r"files/\.qanat-files-\w+/\d+\.json"),
        Kind("`.qanat-files-N/N.twin`", r"files/\.qanat-files-\w+/\d+\.twin"),
        *twins("FILE of `--state`", file="progress.json"),
        Kind(
            "`snapshot-N.arrow` in the folder of the option `state`",
            r"waiting/snapshot-\d+\.arrow",
            -1,
            THREE,
        ),
        Kind("", r"files/.*\.jsonl"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        (folder / "files").mkdir()
        for number, name in enumerate(("c", "b", "a")):
            with (folder / "files" / f"{name}.jsonl").open("w") as file:
                file.write(json.dumps({"n": number}) + "\n")
            self._read(folder)
            save_progress(folder / "progress.json", Progress(Position(number), ("t",), None, number))
            if name == "b":
                older()

        Given(folder / "waiting").keep(_START, _END, [_rows()])

    @staticmethod
    def _read(folder: Path) -> list[tuple[int, int]]:
        """The records in the order of the files' numbers, with these."""
        reader = open_reader(f"file://{folder / 'files' / '*.jsonl'}", settle_s=0)
        try:
            reader.seek("earliest")
            found: list[tuple[int, int]] = []
            while updates := reader.read(100):
                found += [((each.after or {})["n"], each.position.sequence) for each in updates.rows()]  # type: ignore[union-attr]
            return found
        finally:
            reader.close()

    def look(self, folder: Path) -> Outcome:
        with told() as said:
            try:
                right = [number for number, _ in self._read(folder)] == [0, 1, 2]
                progress = load_progress(folder / "progress.json")
                right = right and Given(folder / "waiting").again(_START, _END) == [_rows()]
            except QanatError as error:
                return Outcome(REFUSED, str(error))
        return judged(right and progress is not None and progress.rows == 2, said)
