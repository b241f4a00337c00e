"""A region with three coordinators as real processes: its leader killed under load, disks wiped and damaged,
begun anew."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_region_chain import loaded
from tests.waiting import DEADLINE_S, wait_until

from qanat.cli.main import main
from qanat.client import AsyncClient
from qanat.operate.control import call
from qanat.operate.file import Deployment, Region
from qanat.operate.home import Home
from qanat.operate.layout import coordinators, file_name
from qanat.operate.operations import start, stop, temporary, wait_until_serving
from qanat.operate.overview import look
from qanat.operate.region_processes import NodeProcess, RegionProcesses, region_processes
from qanat.replica.coordinator import ENSEMBLE, journal_of
from qanat.replica.settings import StreamSettings
from qanat.runtime.journal import twin_of

STREAMS = {"prices": {"owner": "eu"}}


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    folder: Path = tmp_path_factory.mktemp("region")
    with region_processes({"eu": 2}, STREAMS, folder=folder, coordinators=3) as processes:
        yield processes


def members(region: RegionProcesses) -> list[NodeProcess]:
    return [region[name] for name in coordinators(region.deployment, "eu")]


def ensemble(node: NodeProcess) -> dict[str, object]:
    found: dict[str, object] = node.status()["ensemble"]
    return found


def leader(region: RegionProcesses) -> NodeProcess:
    """Waits until one of those that run leads, and all of them count."""
    running = [node for node in members(region) if node.running]
    wait_until(lambda: all(ensemble(node)["whole"] for node in running))
    wait_until(lambda: [node for node in running if ensemble(node)["role"] == "leader"])
    return next(node for node in running if ensemble(node)["role"] == "leader")


def test_when_the_leader_is_killed_nobody_s_session_ends_and_publishers_go_on(
    region: RegionProcesses,
) -> None:
    async def drill() -> None:
        epoch = region.wait_chain("eu", 2)["epoch"]
        async with loaded(region.url("eu"), "prices") as load:
            await load.progress()
            for _ in range(3):
                victim = await asyncio.to_thread(leader, region)
                victim.kill()
                await load.progress(10)
                await asyncio.to_thread(leader, region)
                await load.progress(10)
                await asyncio.to_thread(victim.start)
        assert region.wait_chain("eu", 2)["epoch"] == epoch, "no replica was missed"

    asyncio.run(drill())


def test_when_the_head_is_killed_together_with_the_leader_nobody_waits_for_the_head_s_session(
    tmp_path: Path,
) -> None:
    """Sessions last for an hour: who is known to be dead is not waited for, whoever decides by then."""
    hour_ms = 3_600_000.0
    patient = {
        "session": {"timeout_ms": hour_ms},
        "server": {"session_max_ms": hour_ms},
        "chain": {"failure_ms": hour_ms},
    }

    async def drill(region: RegionProcesses) -> None:
        chain = await asyncio.to_thread(region.wait_chain, "eu", 2)
        decides = await asyncio.to_thread(leader, region)
        async with AsyncClient(region.url("eu"), patience=DEADLINE_S) as client:
            before = await client.publish("prices", b"before")
            region[chain["head"]].kill()
            decides.kill()
            async with asyncio.timeout(DEADLINE_S):
                assert await client.publish("prices", b"after") == before + 1

    with region_processes({"eu": 2}, STREAMS, folder=tmp_path, coordinators=3, **patient) as region:
        asyncio.run(drill(region))


def test_a_member_that_lost_its_disk_comes_back_behind_the_others_and_then_counts(
    region: RegionProcesses,
) -> None:
    before = region.wait_chain("eu", 2)
    victim = leader(region)
    victim.kill()
    victim.forget()
    victim.start()
    leader(region)
    other = next(node for node in members(region) if node is not victim)
    other.kill()
    now = leader(region)
    assert now.status()["nodes"] > 3, "the two that are left know all of it"
    assert region.wait_chain("eu", 2) == before
    other.start()
    leader(region)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_member_whose_journal_is_damaged_in_both_files_comes_back_behind_the_others(
    region: RegionProcesses,
) -> None:
    before = region.wait_chain("eu", 2)
    victim = leader(region)
    victim.kill()
    journal = journal_of(victim.data, ENSEMBLE)
    flip(journal)
    flip(twin_of(journal))
    victim.start()
    leader(region)
    (aside,) = victim.status()["set_aside"]
    assert "is damaged at byte" in aside["why"]
    assert region.wait_chain("eu", 2) == before


def test_a_majority_that_forgot_waits_and_is_rebuilt_from_the_journal_that_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment = Deployment(
        name="rebuilt",
        first_port=0,
        regions={"eu": Region(replicas=2)},
        streams={"prices": StreamSettings(owner="eu")},
    )
    with temporary(deployment) as home:
        names = coordinators(home.deployment or deployment, "eu")
        assert len(names) == 3
        for name in names[:2]:
            call(home, "kill", node=name, pause_s=None)
        wait_until(lambda: look(home).held() == frozenset(names[:2]))
        for name in names[:2]:
            shutil.rmtree(home.folder / "data" / file_name(name))
            call(home, "start", node=name)
        wait_until(
            lambda: any("a majority has forgotten" in each for each in look(home).missing()),
            say=look(home).missing,
        )
        assert main(["coordinator", "begin", "--region", "eu", "--yes", "--data", str(home.folder)]) == 0
        said = capsys.readouterr().out
        assert f"found {home.folder}/data/{file_name(names[2])}/journals/ensemble.journal: " in said
        overview = wait_until_serving(home)
        assert overview.ensembles()["eu"].keys() == set(names)


def test_one_coordinator_becomes_three_with_all_it_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path)
    deployment = Deployment(
        name="grown",
        first_port=0,
        regions={"eu": Region(replicas=2, coordinators=1)},
        streams={"prices": StreamSettings(owner="eu")},
    )
    supervisor = start(home, deployment, guarded=False)
    try:
        epoch = wait_until_serving(home).chain("eu").epoch
        words = ["coordinator", "begin", "--members", "3", "--yes", "--data", str(tmp_path)]
        assert main(words) != 0
        assert "`qanat down` first" in capsys.readouterr().err
        stop(home)
        supervisor.wait()
        assert main(words) == 0
        assert home.deployment is not None
        assert home.deployment.regions["eu"].coordinators == 3
        supervisor = start(home, home.deployment)
        overview = wait_until_serving(home)
        assert len(overview.ensembles()["eu"]) == 3
        assert overview.chain("eu").epoch > epoch, "it goes on above what was"
    finally:
        stop(home)
        supervisor.wait()


def test_a_coordinator_that_served_alone_is_no_member_by_a_word_in_its_file(tmp_path: Path) -> None:
    with region_processes({"eu": 1}, STREAMS, folder=tmp_path) as region:
        alone = region["eu/coordinator"]
        alone.stop()
        text = alone.config.read_text()
        for number in (2, 3):
            text += f'[peers."eu/coordinator-{number}"]\nurl = "qanat://127.0.0.1:{number}"\n'
        alone.config.write_text(text)
        alone.begin()
        assert alone.wait() != 0
        said = alone.config.with_suffix(".log").read_text()
        assert "served alone: `qanat coordinator begin`" in said
