"""A coordinator that comes back with less than it had, and a replica too: nothing that was acknowledged is
lost in silence, and the region goes on by itself or says whom it waits for."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import wait_until

from qanat.cli.main import main
from qanat.client import AsyncClient, ClientSettings
from qanat.events.batch import stream_id
from qanat.operate.region_processes import NodeProcess, RegionProcesses, region_processes
from qanat.protocols.chain.records import Had, Record, decode
from qanat.runtime import journal_file

QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0, "vouch_ms": 200.0},
}
PATIENT = ClientSettings(patience_ms=60_000)
JOURNALS = ("journals", "journals.twins")
HARMS = [
    "removed",
    "older copy",
    pytest.param("cut", marks=pytest.mark.soak),
    pytest.param("flipped", marks=pytest.mark.soak),
    pytest.param("folder gone", marks=pytest.mark.soak),
]


class Region:
    """A region under one ordered publisher."""

    def __init__(self, processes: RegionProcesses, folder: Path) -> None:
        self.processes, self.folder = processes, folder
        self.published = 0

    @property
    def coordinator(self) -> NodeProcess:
        return self.processes["eu/coordinator"]

    def publish(self, count: int = 20) -> None:
        async def go() -> None:
            async with AsyncClient(self.processes.url("eu"), settings=PATIENT) as client:
                for number in range(self.published, self.published + count):
                    client.publish("prices", b"%d" % number)
                await client.flush()

        asyncio.run(go())
        self.published += count

    def audit(self) -> None:
        """Every acknowledged event is there, once, in order."""

        async def go() -> list[bytes]:
            seen: list[bytes] = []
            async with AsyncClient(self.processes.url("eu"), settings=PATIENT) as client, asyncio.timeout(60):
                async for batch in client.subscribe("prices", start="earliest").batches():
                    seen += batch.payloads().to_pylist()
                    if len(seen) >= self.published:
                        return seen
            return seen

        assert asyncio.run(go()) == [b"%d" % number for number in range(self.published)]

    def copy(self, node: NodeProcess) -> None:
        """Of a node that runs: what is on disk now."""
        shutil.copytree(node.data, self.folder / "copy", ignore=shutil.ignore_patterns("lock"))

    def harm(self, node: NodeProcess, journal: str, how: str) -> None:
        """Both files of its journal."""
        if how == "folder gone":
            shutil.rmtree(node.data)
            return
        if how == "older folder":
            shutil.rmtree(node.data)
            shutil.copytree(self.folder / "copy", node.data)
            return
        for name in JOURNALS:
            path = node.data / name / f"{journal}.journal"
            content = bytearray(path.read_bytes())
            if how == "removed":
                path.unlink()
            elif how == "older copy":
                shutil.copy(self.folder / "copy" / name / path.name, path)
            elif how == "cut":
                path.write_bytes(content[: len(content) * 2 // 3])
            else:
                content[-20] ^= 1
                path.write_bytes(content)


@contextmanager
def region(folder: Path, replicas: int = 2) -> Iterator[Region]:
    with region_processes({"eu": replicas}, {"prices": {"owner": "eu"}}, folder=folder, **QUICK) as processes:
        processes.wait_chain("eu", replicas)
        yield Region(processes, folder)


def waits(node: NodeProcess) -> str:
    return str(node.status()["chain"]["waits"])


def one_reigns_alone(here: Region) -> tuple[NodeProcess, NodeProcess]:
    """The first was away while the last acknowledged alone; then the coordinator and the last die."""
    here.publish()
    here.copy(here.coordinator)
    chain = here.processes.wait_chain("eu", 2)
    first, last = here.processes[chain["head"]], here.processes[chain["tail"]]
    first.kill()
    here.processes.wait_chain("eu", 1)
    here.publish()
    here.coordinator.kill()
    last.kill()
    return first, last


@pytest.mark.paper("S9")
@pytest.mark.parametrize("how", HARMS)
def test_who_was_away_waits_for_the_one_that_reigned_alone_and_says_so(tmp_path: Path, how: str) -> None:
    with region(tmp_path) as here:
        first, last = one_reigns_alone(here)
        here.harm(here.coordinator, "coordinator", how)
        here.coordinator.start()
        first.start()
        wait_until(lambda: last.name in waits(first))
        assert f"qanat coordinator rebuild --region eu --without {last.name}" in waits(first)
        assert not first.status()["chain"]["answers"]
        wait_until(lambda: last.name.encode() in first.get("/healthz"))
        wait_until(lambda: last.name in first.config.with_suffix(".log").read_text())
        last.start()
        here.processes.wait_chain("eu", 2)
        here.publish()
        here.audit()
        assert waits(first) == waits(last) == ""
        assert (how == "folder gone") == (here.coordinator.status()["set_aside"] == [])


def test_what_nobody_who_was_there_could_know_is_set_aside_and_told(tmp_path: Path) -> None:
    """The whole folder of the coordinator is an older copy, and the only replica that read more is away."""
    with region(tmp_path) as here:
        first, last = one_reigns_alone(here)
        lost = here.published // 2
        shutil.rmtree(here.coordinator.data)
        shutil.copytree(tmp_path / "copy", here.coordinator.data)
        here.coordinator.start()
        first.start()
        here.processes.wait_chain("eu", 1)
        here.published -= lost
        here.publish()
        last.start()
        assert last.wait() == 1
        last.start()
        here.processes.wait_chain("eu", 2)
        (aside,) = last.status()["set_aside"]
        assert "which the coordinator has forgotten, and the chain went on without it" in aside["why"]
        assert list(Path(aside["folder"]).glob("streams/*/*.seg"))
        here.audit()


def records(node: NodeProcess) -> list[Record]:
    found = journal_file.read(node.data / "journals" / "region.journal").records
    return [decode(each) for each in found]


def rebuild(capsys: pytest.CaptureFixture[str], nodes: list[NodeProcess], *words: str) -> tuple[int, str]:
    asked = [word for node in nodes for word in ("--replica", str(node.data))]
    code = main(["coordinator", "rebuild", *asked, *words])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_an_operator_says_who_is_gone_for_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with region(tmp_path) as here:
        first, last = one_reigns_alone(here)
        here.harm(here.coordinator, "coordinator", "removed")
        here.coordinator.start()
        first.start()
        wait_until(lambda: last.name in waits(first))
        code, said = rebuild(capsys, [first])
        assert (code, "keeps" in said, f"waits for {last.name}" in said) == (1, True, True)
        code, said = rebuild(capsys, [first], "--without", first.name)
        assert (code, f"{first.name} answers, so it is not gone" in said) == (2, True)
        code, said = rebuild(capsys, [first], "--without", "eu/proxy-9")
        assert (code, "does not wait for eu/proxy-9" in said) == (2, True)
        code, said = rebuild(capsys, [first], "--without", last.name)
        assert (code, "nothing has changed; run this again with --yes" in said) == (1, True)
        assert f"every event that only {last.name} stored is lost" in said
        code, said = rebuild(capsys, [first], "--without", last.name, "--yes")
        assert (code, "the chain of eu serves, in epoch" in said) == (0, True)
        here.published //= 2
        here.publish()
        here.audit()
        assert rebuild(capsys, [first])[0] == 0
        last.start()
        assert last.wait() == 1
        last.start()
        here.processes.wait_chain("eu", 2)
        assert "the chain went on without it" in last.status()["set_aside"][0]["why"]


def test_a_chain_whose_coordinator_knows_all_is_rebuilt_without_who_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with region(tmp_path) as here:
        first, last = one_reigns_alone(here)
        here.coordinator.start()
        first.start()
        wait_until(lambda: last.name in waits(first))
        assert rebuild(capsys, [first], "--without", last.name, "--yes")[0] == 0
        here.published //= 2
        here.publish()
        here.audit()


@pytest.mark.parametrize("how", [*HARMS, "older folder"])
def test_a_region_whose_replicas_are_there_mends_itself(tmp_path: Path, how: str) -> None:
    """It served, and answered nobody for minutes; two configurations had one epoch."""
    with region(tmp_path) as here:
        here.publish()
        here.copy(here.coordinator)
        chain = here.processes.wait_chain("eu", 2)
        here.processes[chain["head"]].kill()
        here.processes.wait_chain("eu", 1)
        here.publish()
        here.processes[chain["head"]].start()
        epoch = here.processes.wait_chain("eu", 2)["epoch"]
        here.coordinator.kill()
        here.harm(here.coordinator, "coordinator", how)
        here.coordinator.start()
        here.publish()  # perhaps on leases from before, while nobody has asked the coordinator yet
        wait_until(lambda: here.processes.wait_chain("eu", 2)["epoch"] > epoch)
        here.publish()
        here.audit()


@pytest.mark.parametrize("how", ["removed", "older copy", pytest.param("flipped", marks=pytest.mark.soak)])
def test_an_heir_that_lost_its_journal_is_no_authority(tmp_path: Path, how: str) -> None:
    """What it acknowledged alone is on its disk alone. Nobody goes on without it, and it does not go on
    without its journal."""
    with region(tmp_path) as here:
        here.publish()
        chain = here.processes.wait_chain("eu", 2)
        head, heir = here.processes[chain["head"]], here.processes[chain["tail"]]
        here.copy(heir)
        head.kill()
        here.processes.wait_chain("eu", 1)
        here.publish()
        heir.kill()
        kept = {name: (heir.data / name / "region.journal").read_bytes() for name in JOURNALS}
        here.harm(heir, "region", how)
        heir.begin()
        head.start()
        wait_until(lambda: heir.name in waits(head))
        wait_until(lambda: "asking the others" in heir.config.with_suffix(".log").read_text())
        heir.kill()
        for name, content in kept.items():  # from a backup
            (heir.data / name / "region.journal").write_bytes(content)
        (heir.data / "damaged").unlink(missing_ok=True)
        heir.start()
        here.processes.wait_chain("eu", 2)
        here.publish()
        here.audit()


def test_a_replica_whose_streams_are_an_older_copy_is_no_authority(tmp_path: Path) -> None:
    """With what stands beside them of how far they were synced. Both die, and it comes first."""
    with region(tmp_path) as here:
        here.publish()
        chain = here.processes.wait_chain("eu", 2)
        first, last = here.processes[chain["head"]], here.processes[chain["tail"]]
        here.copy(first)
        here.publish()
        wait_until(lambda: Had(((stream_id("prices"), 40),)) in records(first))
        for node in (first, last):
            node.kill()
        for name in ("streams", "streams.synced"):
            shutil.rmtree(first.data / name)
            shutil.copytree(tmp_path / "copy" / name, first.data / name)
        first.start()
        wait_until(lambda: f"{first.name} (it is back, but without all that it had)" in waits(first))
        assert "stream 'prices' had 40 events on disk here, and 20 are left" in first.status()["short"][0]
        last.start()
        here.processes.wait_chain("eu", 2)
        here.publish()
        here.audit()
        last.kill()
        here.processes.wait_chain("eu", 1)
        here.audit()
