"""A replica whose disk gives back other bytes than were written: it begins anew from the others, or says what
to do."""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.integration.damaging import Kind, unknown
from tests.integration.damaging_states import DeploymentWorld
from tests.integration.damaging_streams import unknown_of_node

from qanat.cli.deployment_status import shown
from qanat.client import AsyncClient, ClientSettings
from qanat.client.errors import RequestRefused
from qanat.events.batch import stream_id
from qanat.events.errors import LocalError
from qanat.events.layout import HEADER_BYTES
from qanat.log.segment_file import HEAD_BYTES, parse_name
from qanat.operate.control import call
from qanat.operate.file import Region
from qanat.operate.operations import temporary, wait_until_serving
from qanat.operate.overview import look
from qanat.operate.region_processes import NodeProcess, RegionProcesses, make_deployment, region_processes

QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0},
}
PATIENT = ClientSettings(patience_ms=60_000)
EVENTS = 300
HEADER, BODY = HEAD_BYTES + 8, HEAD_BYTES + HEADER_BYTES + 16
"""Of the first batch of a segment: a byte of its header is looked at when the log is opened, one of its body
when it is read."""


STREAMS = {"prices": {"owner": "eu", "segment_bytes": 1 << 16, "tail_bytes": 1 << 16}}


@contextmanager
def published(folder: Path, replicas: int) -> Iterator[RegionProcesses]:
    """A region with a stream of many segments."""
    with region_processes({"eu": replicas}, STREAMS, folder=folder, **QUICK) as region:
        asyncio.run(publish(region.url("eu")))
        yield region
        assert [name for node in region.replicas("eu") for name in unknown_of_node(node.data)] == []


async def publish(url: str) -> None:
    async with AsyncClient(url, settings=PATIENT) as client:
        for number in range(EVENTS):
            client.publish("prices", payload(number))
            if number % 50 == 49:
                await client.flush()


def payload(number: int) -> bytes:
    return b"%d" % number + bytes(1000)


def segments(node: NodeProcess) -> list[Path]:
    folder = node.data / "streams" / f"{stream_id('prices'):016x}"
    return sorted(path for path in folder.iterdir() if parse_name(path.name) is not None)


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


async def read(region: RegionProcesses) -> None:
    async with AsyncClient(region.url("eu"), settings=PATIENT) as client, asyncio.timeout(60):
        seen: list[bytes] = []
        async for batch in client.subscribe("prices", start="earliest").batches():
            seen += batch.payloads().to_pylist()
            if len(seen) >= EVENTS:
                break
    assert seen == list(map(payload, range(EVENTS)))


def with_a_damaged_tail(region: RegionProcesses) -> tuple[NodeProcess, NodeProcess]:
    """Head and tail. The tail has bad bytes where nobody looked since it was started."""
    head, tail = (region[name] for name in region.wait_chain("eu", 2)["replicas"])
    tail.kill()
    region.wait_chain("eu", 1)
    damage(segments(tail)[1], BODY)
    tail.start()
    assert region.wait_chain("eu", 2)["tail"] == tail.name
    return head, tail


def check_anew(region: RegionProcesses, node: NodeProcess, why: str) -> None:
    """It holds all again, what it held lies aside, and it says so."""
    region.wait_chain("eu", 2)
    (aside,) = node.status()["set_aside"]
    assert Path(aside["folder"]) == node.data / "set-aside" / "1"
    assert why in aside["why"]
    held = {"streams", "streams.synced", "journals", "journals.twins", "journals.reached"}
    assert {path.name for path in Path(aside["folder"]).iterdir()} == {"why.txt", *held}
    assert not (node.data / "damaged").exists()
    assert aside["why"] in node.config.with_suffix(".log").read_text()
    for other in region.replicas("eu"):
        if other is not node:
            other.kill()
    asyncio.run(read(region))


@pytest.mark.parametrize("what", ["head", "journal"])
def test_damage_that_is_found_at_the_start(tmp_path: Path, what: str) -> None:
    with published(tmp_path, 2) as region:
        node = region[region.wait_chain("eu", 2)["head"]]
        node.kill()
        if what == "journal":
            for folder in ("journals", "journals.twins"):
                damage(node.data / folder / "region.journal", 0)
        else:
            damage(segments(node)[1], HEADER)
        node.start()
        check_anew(region, node, "is not a journal" if what == "journal" else "stream 'prices' is damaged")


@pytest.mark.parametrize("what", ["newest segment", "stream"])
def test_what_was_synced_and_vanished_is_noticed_and_told(tmp_path: Path, what: str) -> None:
    with published(tmp_path, 2) as region:
        node = region[region.wait_chain("eu", 2)["tail"]]
        node.kill()
        newest = segments(node)[-1]
        if what == "stream":
            shutil.rmtree(newest.parent)
        else:
            newest.unlink()
        node.start()
        check_anew(region, node, f"stream 'prices' is damaged ({newest.parent}")


def test_journals_that_are_gone_though_there_are_streams(tmp_path: Path) -> None:
    with published(tmp_path, 2) as region:
        node = region[region.wait_chain("eu", 2)["head"]]
        node.kill()
        for folder in ("journals", "journals.twins"):
            shutil.rmtree(node.data / folder)
        node.start()
        region.wait_chain("eu", 2)
        (aside,) = node.status()["set_aside"]
        assert "is gone, and so is its twin" in aside["why"]


def test_one_file_of_a_journal_is_made_good_from_its_twin(tmp_path: Path) -> None:
    """The replica is as good as it was: it goes on alone, and says what it found."""
    with published(tmp_path, 2) as region:
        chain = region.wait_chain("eu", 2)
        node, other = region[chain["head"]], region[chain["tail"]]
        other.kill()
        region.wait_chain("eu", 1)
        node.kill()
        (node.data / "journals" / "region.journal").write_bytes(b"")
        node.start()
        region.wait_chain("eu", 1)
        status = node.status()
        assert ("region.journal was empty" in status["repaired"][0], status["set_aside"]) == (True, [])
        asyncio.run(read(region))


def test_damage_that_is_found_by_a_reader(tmp_path: Path) -> None:
    """The reader is given everything by another replica; the damaged one leaves the chain, and begins
    anew."""
    with published(tmp_path, 2) as region:
        head, tail = with_a_damaged_tail(region)
        asyncio.run(read(region))
        assert tail.wait() == 1
        assert "stream 'prices' is damaged" in (tail.data / "damaged").read_text()
        assert head.running
        tail.start()
        check_anew(region, tail, "stream 'prices' is damaged")


def test_damage_that_is_found_by_who_joins(tmp_path: Path) -> None:
    """The tail reads for it, and cannot go on; the head serves it instead."""
    with published(tmp_path, 2) as region:
        head, tail = with_a_damaged_tail(region)
        region.deployment = msgspec.structs.replace(
            region.deployment, regions={"eu": Region(replicas=3, coordinators=1)}
        )
        region.write()
        region.reload()
        region["eu/proxy-3"].start()
        assert tail.wait() == 1
        assert region.wait_chain("eu", 2)["replicas"] == [head.name, "eu/proxy-3"]
        tail.start()
        region.wait_chain("eu", 3)
        assert "stream 'prices' is damaged" in tail.status()["set_aside"][0]["why"]
        asyncio.run(read(region))


def test_who_joins_the_only_one_that_has_it_waits(tmp_path: Path) -> None:
    """It cannot be given everything, so it is given no place; and nothing is set aside."""
    with published(tmp_path, 2) as region:
        chain = region.wait_chain("eu", 2)
        last, empty = region[chain["head"]], region[chain["tail"]]
        empty.kill()
        empty.forget()
        region.wait_chain("eu", 1)
        last.kill()
        damage(segments(last)[1], BODY)
        last.start()
        region.wait_chain("eu", 1)
        empty.start()
        assert last.wait() == 1
        said = last.config.with_suffix(".log").read_text()
        assert "no other replica has it: restore the file from a backup" in said
        assert not (last.data / "damaged").exists() and not (last.data / "set-aside").exists()
        damage(segments(last)[1], BODY)  # as a backup has it
        last.start()
        region.wait_chain("eu", 2)
        last.kill()
        asyncio.run(read(region))


def test_an_operator_sees_it_and_need_not_do_anything(tmp_path: Path) -> None:
    deployment = make_deployment({"eu": 2}, STREAMS, **QUICK)
    with temporary(deployment) as home:
        asyncio.run(publish(home.url_of("eu")))
        name = look(home).chain("eu").head
        call(home, "kill", node=name, pause_s=None)
        until(lambda: look(home).held() == {name})
        folder = home.folder / "data" / name.replace("/", "~")
        damage(sorted(folder.glob("streams/*/*.seg"))[1], HEADER)
        call(home, "start", node=name)
        overview = wait_until_serving(home)
        assert overview.chain("eu").tail == name
        assert f"  ! {name} began anew: stream 'prices' is damaged" in shown(overview)
        assert f"what it held lies in {folder}/set-aside/1 until you remove it" in shown(overview)
        assert unknown(home.folder, [*DeploymentWorld.kinds, Kind("", "data/.*")]) == []
        assert unknown_of_node(home.folder / "data" / "eu~coordinator", "coordinator") == []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_only_replica_keeps_what_it_has_and_says_what_to_do(tmp_path: Path) -> None:
    with published(tmp_path, 1) as region:
        node = region["eu/proxy-1"]
        node.kill()
        victim = segments(node)[1]
        damage(victim, HEADER)
        before = {path: path.stat().st_size for path in segments(node)}
        with pytest.raises(LocalError, match="has no other replica: restore the file from a backup"):
            node.start()
        assert {path: path.stat().st_size for path in segments(node)} == before
        assert not (node.data / "set-aside").exists()
        damage(victim, HEADER)  # as a backup has it
        node.start()
        region.wait_chain("eu", 1)
        asyncio.run(read(region))


def test_the_only_replica_goes_on_with_what_is_whole(tmp_path: Path) -> None:
    """Readers of the damaged part are refused; publishers and other readers notice nothing."""

    async def drive(region: RegionProcesses) -> None:
        async with AsyncClient(region.url("eu"), settings=PATIENT) as client, asyncio.timeout(60):
            with pytest.raises(RequestRefused, match="is damaged at byte"):
                async for _ in client.subscribe("prices", start="earliest").batches():
                    pass
            number = await client.publish("prices", b"after")
            async for batch in client.subscribe("prices", start=number).batches():
                assert batch.payloads().to_pylist() == [b"after"]
                break

    with published(tmp_path, 1) as region:
        node = region["eu/proxy-1"]
        node.kill()
        damage(segments(node)[1], BODY)
        node.start()
        region.wait_chain("eu", 1)
        asyncio.run(drive(region))
        assert "no other replica has it: restore the file from a backup" in node.status()["damaged"]
        assert node.running
