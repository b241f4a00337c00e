"""What is set aside when a disk gives back other bytes: all of it, however often it is interrupted; and a
server's readers."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from qanat.client import AsyncClient
from qanat.client.errors import RequestRefused
from qanat.events.layout import HEADER_BYTES
from qanat.log.segment_file import HEAD_BYTES
from qanat.replica import rejoining
from qanat.replica.damage import DamagedDisk, DamagedState
from qanat.replica.settings import PeerSettings, ProxySettings, RegionSettings
from qanat.runtime.config import load
from qanat.serving.server import StreamServer
from qanat.serving.settings import StreamServerSettings
from qanat.wire.control import Identity


def state(data: Path, word: str) -> None:
    for name in ("streams", "journals"):
        (data / name).mkdir()
        (data / name / "file").write_text(word)


def test_everything_goes_aside_and_the_sentence_with_it(tmp_path: Path) -> None:
    disk = DamagedDisk(tmp_path)
    assert (disk.marked(), disk.lying()) == ("", [])
    state(tmp_path, "one")
    disk.mark("bad bytes")
    assert DamagedDisk(tmp_path).marked() == "bad bytes"
    first = disk.set_aside("bad bytes")
    assert (Path(first.folder, "streams", "file").read_text(), disk.marked()) == ("one", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set-aside"]
    state(tmp_path, "two")
    second = disk.set_aside("more of them")
    assert disk.lying() == [first, second]


def test_a_crash_in_the_middle(tmp_path: Path) -> None:
    """One half was moved; then the process died."""
    disk = DamagedDisk(tmp_path)
    state(tmp_path, "one")
    disk.mark("bad bytes")
    half = tmp_path / "set-aside" / "1"
    half.mkdir(parents=True)
    (tmp_path / "journals").rename(half / "journals")
    assert disk.lying() == []
    aside = disk.set_aside(disk.marked())
    assert {path.name for path in Path(aside.folder).iterdir()} == {"streams", "journals", "why.txt"}


def test_a_disk_that_goes_on_damaging_is_not_filled(tmp_path: Path) -> None:
    disk = DamagedDisk(tmp_path)
    for number in range(3):
        state(tmp_path, str(number))
        disk.set_aside("bad bytes")
    state(tmp_path, "last")
    with pytest.raises(DamagedState, match="the disk itself seems to be bad"):
        disk.set_aside("bad bytes")
    assert (tmp_path / "streams" / "file").read_text() == "last"


def settings(**urls: str) -> ProxySettings:
    peers = {name.replace("_", "/proxy-"): PeerSettings(url=url) for name, url in urls.items()}
    return ProxySettings(region=RegionSettings(name="eu"), peers=peers)


@pytest.mark.parametrize("answering", [False, True])
def test_nothing_is_moved_unless_another_replica_says_that_it_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answering: bool
) -> None:
    """Nobody answers, or somebody who is in no chain; and a replica of another region does not count."""
    monkeypatch.setattr(rejoining, "_LEAST_S", 0.5)
    monkeypatch.setattr(rejoining, "_TIMEOUTS", 0)
    state(tmp_path, "one")
    flags = ("node.listen=127.0.0.1:0", f"node.data={tmp_path / 'other'}", "admin.enabled=false")

    async def main() -> None:
        server = StreamServer(partial(load, StreamServerSettings, flags=flags))
        await server.on_start()
        url = server.url
        if not answering:
            await server.on_stop()
        me, disk = Identity(name="eu/proxy-1"), DamagedDisk(tmp_path)
        with pytest.raises(DamagedState, match="bad bytes; no other replica of 'eu' is in its chain now"):
            await rejoining.begin_anew(settings(eu_2=url), me, disk, "bad bytes", lambda: False)
        with pytest.raises(DamagedState, match="has no other replica: restore the file from a backup"):
            await rejoining.begin_anew(settings(us_1=url), me, disk, "bad bytes", lambda: False)
        if answering:
            await server.on_stop()

    asyncio.run(main())
    assert (tmp_path / "streams" / "file").read_text() == "one"
    assert not (tmp_path / "set-aside").exists()


def test_a_server_s_reader_of_what_is_damaged_is_refused_and_others_read_on(tmp_path: Path) -> None:
    small = ("log.tail_bytes=65536", "log.segment_bytes=65536")
    flags = ("node.listen=127.0.0.1:0", f"node.data={tmp_path}", "admin.enabled=false", *small)

    async def serve() -> StreamServer:
        server = StreamServer(partial(load, StreamServerSettings, flags=flags))
        await server.on_start()
        return server

    async def main() -> None:
        server = await serve()
        async with AsyncClient(server.url) as client:
            for _ in range(10):
                await client.publish_many("s", [bytes(1000)] * 20)
        await server.on_stop()
        victim = sorted(tmp_path.glob("streams/*/*.seg"))[1]
        content = bytearray(victim.read_bytes())
        content[HEAD_BYTES + HEADER_BYTES + 16] ^= 0xFF
        victim.write_bytes(content)
        server = await serve()
        async with AsyncClient(server.url) as client, asyncio.timeout(30):
            with pytest.raises(RequestRefused, match="is damaged at byte"):
                async for _ in client.subscribe("s", start="earliest").batches():
                    pass
            number = await client.publish("s", b"after")
            async for batch in client.subscribe("s", start=number).batches():
                assert batch.payload(0) == b"after"
                break
        await server.on_stop()

    asyncio.run(main())
