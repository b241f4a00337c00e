"""Damage at one machine of a region while another is away: nothing that was acknowledged is missing,
different or there twice at any replica."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.integration.damaging import PAGE, plain, section

from qanat.client import AsyncClient, ClientSettings
from qanat.events.batch import stream_id
from qanat.log import LogConfig, OsDisk, StreamLog
from qanat.log.reader import Chunk
from qanat.operate.region_processes import NodeProcess, RegionProcesses, region_processes

pytestmark = pytest.mark.soak

QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0},
}
PATIENT = ClientSettings(patience_ms=120_000)
STREAM = "prices"
FOLDERS = ("journals", "journals.twins", "journals.reached")


class Publishing:
    """Numbered events, one batch after another, exactly once whoever dies."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.acknowledged = 0
        self._stopping = False

    async def run(self) -> None:
        async with AsyncClient(self._url, name="loader", settings=PATIENT) as client:
            number = 0
            while not self._stopping:
                for receipt in [client.publish(STREAM, b"%d" % (number + i)) for i in range(10)]:
                    await receipt
                number += 10
                self.acknowledged = number

    async def more(self, events: int = 100, patience_s: float = 120.0) -> None:
        """Until so many more were acknowledged."""
        upto = self.acknowledged + events
        async with asyncio.timeout(patience_s):
            while self.acknowledged < upto:
                await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._stopping = True


@asynccontextmanager
async def publishing(region: RegionProcesses) -> AsyncIterator[Publishing]:
    load = Publishing(region.url("eu"))
    task = asyncio.create_task(load.run())
    try:
        await load.more()
        yield load
        load.stop()
        await asyncio.wait_for(task, 120)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def held(data: Path) -> list[int]:
    """What a replica that does not run has on its disk, in its order."""
    number = f"{stream_id(STREAM):016x}"
    folder, record = data / "streams" / number, data / "streams.synced" / number
    log = StreamLog.open(OsDisk(), str(folder), stream_id(STREAM), LogConfig(), synced=str(record))
    found: list[int] = []
    while len(found) < log.next - 1:
        chunk = log.read(len(found) + 1, 1 << 30)
        assert isinstance(chunk, Chunk)
        found += [int(each) for batch in chunk.batches() for each in batch.payloads().to_pylist()]
    log.close()
    return found


def check(region: RegionProcesses, acknowledged: int) -> None:
    """Every replica has the same: all that was acknowledged, once, in the order of its publishing."""
    for node in region.nodes.values():
        node.stop()
    histories = [held(node.data) for node in region.replicas("eu")]
    for history in histories:
        assert history[:acknowledged] == list(range(acknowledged))
        assert len(set(history)) == len(history)
    assert histories[0] == histories[1]


# What is done to a journal

Harm = Callable[[Path, Path], None]


def flip(path: Path, _older: Path) -> None:
    """In its last block."""
    content = bytearray(path.read_bytes())
    content[-12] ^= 1
    path.write_bytes(content)


def cut(path: Path, _older: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 20])


def remove(path: Path, _older: Path) -> None:
    path.unlink()


def put_back(path: Path, older: Path) -> None:
    shutil.copyfile(older, path)


HARMS: dict[str, Harm] = {"flipped": flip, "cut": cut, "removed": remove, "older copy": put_back}
FILES = {"one file": FOLDERS[:1], "both files": FOLDERS[:2], "all three files": FOLDERS}
CASES = [(files, harm) for files in ("one file", "both files") for harm in HARMS]
CASES += [("all three files", "older copy")]
"""The third file says how far the other two reached; all three together are a true state of the past."""


class Journals:
    """Both files of a journal, and what they were at a time before."""

    def __init__(self, node: NodeProcess, name: str, aside: Path) -> None:
        self._paths = {folder: node.data / folder / name for folder in FOLDERS}
        self._aside = aside

    def keep(self) -> None:
        for folder, path in self._paths.items():
            (self._aside / folder).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self._aside / folder / path.name)

    def restore(self) -> None:
        for folder, path in self._paths.items():
            shutil.copyfile(self._aside / folder / path.name, path)

    def harm(self, harm: str, folders: tuple[str, ...]) -> None:
        for folder in folders:
            path = self._paths[folder]
            HARMS[harm](path, self._aside / folder / path.name)


def said(*nodes: NodeProcess) -> list[str]:
    """What they say of damage, of what they set aside, and whom they wait for."""
    found: list[str] = []
    for node in nodes:
        with suppress(OSError):
            status = node.status()
            found += status["repaired"]
            found += [f"set aside: {each['why']}" for each in status.get("set_aside", ())]
            found += [each for each in [status.get("chain", {}).get("waits", "")] if each]
    return found


def ended(node: NodeProcess) -> str:
    """With which sentence it ends by itself; empty if it goes on, and serves nobody."""
    deadline = time.monotonic() + 45.0
    while node.running and time.monotonic() < deadline:
        time.sleep(0.1)
    node.kill()
    lines = node.config.with_suffix(".log").read_text().strip().splitlines()
    return lines[-1].removeprefix("qanat: ") if lines and lines[-1].startswith("qanat: ") else ""


def write_row(
    request: pytest.FixtureRequest, away: str, what: str, then: str, sentences: Sequence[str]
) -> None:
    """The rows of pairs are written by `./qanat test --soak --update-damage`."""
    if request.config.getoption("--update-damage"):
        page = PAGE.read_text(encoding="utf-8")
        at, end = section(page, "pairs")
        key = f"| {away} | {what} |"
        shown = "; or: ".join(dict.fromkeys(plain(each, PAGE) for each in sentences)) or "–"
        row = f"{key} {then} | {shown} |"
        lines = [line for line in page[at:end].splitlines() if not line.startswith(key)] + [row]
        head = [
            "| who is away or not there yet | what is damaged | then | what is said |",
            "|---|---|---|---|",
        ]
        lines = head + sorted(line for line in lines if line not in head)
        PAGE.write_text(page[:at] + "\n".join(lines) + "\n" + page[end:], encoding="utf-8")


@pytest.mark.parametrize(("files", "harm"), CASES)
@pytest.mark.parametrize("delay_s", [0.0, 0.7])
def test_the_journal_of_an_heir_is_damaged_while_the_former_head_is_away(
    tmp_path: Path, harm: str, files: str, delay_s: float, request: pytest.FixtureRequest
) -> None:
    """The tail dies, then the head; the one that may goes on alone, dies, and comes back with a damaged
    journal; then the other comes."""

    async def story(region: RegionProcesses) -> tuple[int, list[str]]:
        async with publishing(region) as load:
            chain = await asyncio.to_thread(region.wait_chain, "eu", 2)
            head, tail = region[chain["head"]], region[chain["tail"]]
            tail.kill()
            await asyncio.sleep(delay_s)
            head.kill()
            heir, former = tail, head
            if delay_s:  # the head went on alone, so nobody can go on without it
                heir, former = head, tail
            journals = Journals(heir, "region.journal", tmp_path / "older")
            journals.keep()
            await asyncio.to_thread(heir.start)
            await load.more()
            heir.kill()
            whole = Journals(heir, "region.journal", tmp_path / "whole")
            whole.keep()
            journals.harm(harm, FILES[files])
            before = load.acknowledged
            heir.begin()
            await asyncio.to_thread(former.start)
            what = []
            if (
                files != "one file"
            ):  # it alone has all, and cannot vouch for it: the region waits for its journal
                what.append(await asyncio.to_thread(ended, heir))
                what += said(former)
                assert load.acknowledged <= before + 10, "what was answered just before it was killed"
                whole.restore()
                heir.begin()
            await asyncio.to_thread(heir.wait_ready)
            await asyncio.to_thread(region.wait_chain, "eu", 2, 120.0)
            await load.more()
            what += said(heir, former)
            upto = load.acknowledged
        return upto, [each for each in what if each]

    with region_processes(
        {"eu": 2}, {STREAM: {"owner": "eu"}}, folder=tmp_path / "region", **QUICK
    ) as region:
        upto, what = asyncio.run(story(region))
        check(region, upto)
        away = "the former head" if not delay_s else "the former tail"
        then = "all is there"
        if files != "one file":
            then = "nobody serves, and nothing is thrown away; with the journal from a copy all is there"
        write_row(request, away, f"{files} of `region.journal` {harm}", then, what)


@pytest.mark.parametrize(("files", "harm"), CASES)
def test_the_coordinators_journal_is_damaged_while_a_replica_is_away(
    tmp_path: Path, harm: str, files: str, request: pytest.FixtureRequest
) -> None:
    """One replica is away while the other acknowledges alone; then coordinator and this one die, and who was
    away is there first."""

    told_apart = files == "all three files"

    async def story(region: RegionProcesses) -> tuple[int, list[str], NodeProcess]:
        coordinator = region["eu/coordinator"]
        async with publishing(region) as load:
            chain = await asyncio.to_thread(region.wait_chain, "eu", 2)
            stays, away = region[chain["head"]], region[chain["tail"]]
            journals = Journals(coordinator, "coordinator.journal", tmp_path / "older")
            journals.keep()
            away.kill()
            await asyncio.to_thread(region.wait_chain, "eu", 1)
            await load.more(300)
            coordinator.kill()
            stays.kill()
            journals.harm(harm, FILES[files])
            await asyncio.to_thread(coordinator.start)
            await asyncio.to_thread(away.start)
            if told_apart:
                await load.more()
            await asyncio.to_thread(stays.start)
            if told_apart:
                assert await asyncio.to_thread(stays.wait) == 1
                await asyncio.to_thread(stays.start)
            await asyncio.to_thread(region.wait_chain, "eu", 2, 120.0)
            await load.more()
            what = said(coordinator, stays, away)
            upto = load.acknowledged
        return upto, what, stays

    with region_processes(
        {"eu": 2}, {STREAM: {"owner": "eu"}}, folder=tmp_path / "region", **QUICK
    ) as region:
        upto, what, stays = asyncio.run(story(region))
        then = "all is there"
        if told_apart:  # a true state of the past, and nobody is there who knows better: see docs/chain.md
            then = (
                "who was away goes on; what was acknowledged meanwhile is missing in the chain, and lies"
                " aside at the other"
            )
            aside = held(stays.data / "set-aside" / "1")
            assert len(aside) >= 300 and aside == list(range(len(aside)))
            assert any("set aside" in each for each in what)
            for node in region.nodes.values():
                node.stop()
            assert held(region.replicas("eu")[0].data) == held(region.replicas("eu")[1].data)
        else:
            check(region, upto)
        write_row(request, "a replica", f"{files} of `coordinator.journal` {harm}", then, what)
