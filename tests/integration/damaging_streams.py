"""Streams: a server alone, a replica, its coordinator. Their files, and how they start from them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from tests.integration.damaging import (
    ANEW,
    LOST,
    READER,
    REFUSED,
    THREE,
    Kind,
    Outcome,
    World,
    files,
    judged,
    told,
)

from qanat.client import AsyncClient, ClientSettings
from qanat.client.errors import RequestRefused
from qanat.events.batch import stream_id
from qanat.events.errors import LocalError, QanatError
from qanat.log.errors import CorruptLog
from qanat.operate.region_processes import region_processes
from qanat.replica import node as proxies
from qanat.replica.coordinator import CoordinatorNode
from qanat.replica.node import ProxyNode
from qanat.replica.settings import CoordinatorSettings, ProxySettings
from qanat.runtime.admin_note import leave_note
from qanat.runtime.config import load
from qanat.serving.server import StreamServer
from qanat.serving.settings import StreamServerSettings

STREAM, OTHER = "orders", "prices"
_NUMBER = "[0-9a-f]{16}"
_FIRST, _OTHER = (f"{stream_id(name):016x}" for name in (STREAM, OTHER))
_SEGMENT = r"\d+-\d+\.seg"
_EVENTS, _OLDER = 60, 48
"""So many are published in all, and before the older copies are made: the last segment has some of both."""
_IMPATIENT = ClientSettings(patience_ms=3_000)


def payload(number: int) -> bytes:
    return b"%d " % number + bytes(3000)


async def publish(url: str, first: int, last: int) -> None:
    """Of the first stream the newest segment stays the same; the other one begins another, and so has another
    manifest."""
    async with AsyncClient(url) as client:
        for number in range(first, last):
            client.publish(STREAM, payload(number))
            client.publish(OTHER, payload(number) * 3)
            if number % 4 == 3:
                await client.flush()


async def take(url: str) -> list[bytes]:
    """All that the stream has, as far as it is given."""
    seen: list[bytes] = []
    async with AsyncClient(url, settings=_IMPATIENT) as client, asyncio.timeout(10):
        async for batch in client.subscribe(STREAM, start="earliest").batches():
            seen += batch.payloads().to_pylist()
            if len(seen) >= _EVENTS:
                break
    return seen


class ServerWorld(World):
    name = "a server alone"
    kinds: tuple[Kind, ...] = (
        Kind("`streams/N/*.seg`, complete", f"streams/{_FIRST}/{_SEGMENT}", 0, THREE),
        Kind("`streams/N/*.seg`, the newest", f"streams/{_FIRST}/{_SEGMENT}", -1, THREE),
        Kind("`streams/N/manifest`", f"streams/{_OTHER}/manifest"),
        Kind("`streams/N/stream.json`", f"streams/{_NUMBER}/stream\\.json"),
        Kind("`streams.synced/N`", f"streams\\.synced/{_NUMBER}"),
        Kind("`streams.synced/N.json`, twin of `stream.json`", f"streams\\.synced/{_NUMBER}\\.json"),
        Kind("`streams/N/*.staged.tmp`", f"streams/{_NUMBER}/.*\\.tmp"),
        Kind("`admin.json`", r"admin\.json"),
        Kind("", f"streams/{_NUMBER}/({_SEGMENT}|manifest)"),
        Kind("`lock`", "lock"),
    )

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        async def life(first: int, last: int) -> None:
            server = self._server(folder)
            await server.on_start()
            await publish(server.url, first, last)
            await server.on_stop()

        asyncio.run(life(0, _OLDER))
        leave_note(folder, "127.0.0.1", 1)
        older()
        asyncio.run(life(_OLDER, _EVENTS))
        leave_note(folder, "127.0.0.1", 2)  # as one that was killed leaves it
        (folder / "streams" / f"{stream_id(STREAM):016x}" / "1.staged.tmp").write_bytes(b"half a segment")

    @staticmethod
    def _server(folder: Path) -> StreamServer:
        flags = {
            "node.listen": "127.0.0.1:0",
            "node.data": str(folder),
            "admin.enabled": False,
            "log.segment_bytes": 1 << 16,
        }
        return StreamServer(partial(load, StreamServerSettings, flags=flags))

    def look(self, folder: Path) -> Outcome:
        return asyncio.run(self._look(folder))

    async def _look(self, folder: Path) -> Outcome:
        server = self._server(folder)
        with told("qanat.files", "qanat.server", "qanat.streams"):
            try:
                await server.on_start()
            except LocalError as error:
                await server.registry.close()
                return Outcome(REFUSED, str(error))
            try:
                whole = await take(server.url) == [payload(number) for number in range(_EVENTS)]
                return judged(whole, server.registry.notes)
            except RequestRefused as error:
                return Outcome(READER, str(error))
            except TimeoutError:
                return Outcome(LOST, "nothing comes")
            finally:
                await server.on_stop()


class Anew(Exception):
    """It would ask the others now, and begin anew."""


async def _anew(_settings: object, _me: object, _disk: object, why: str, _stopping: object) -> None:
    raise Anew(why)


class ReplicaWorld(World):
    """One of a region's; what it does once it knows that it is damaged is shown by other tests."""

    name = "a replica"
    kinds: tuple[Kind, ...] = (
        Kind("`streams/N/*.seg`, complete", f"eu~proxy-1/streams/{_FIRST}/{_SEGMENT}", 0, THREE),
        Kind("`streams/N/*.seg`, the newest", f"eu~proxy-1/streams/{_FIRST}/{_SEGMENT}", -1, THREE),
        Kind("`streams/N/manifest`", f"eu~proxy-1/streams/{_OTHER}/manifest"),
        Kind("`streams.synced/N`", f"eu~proxy-1/streams\\.synced/{_NUMBER}"),
        Kind("`journals/region.journal`", r"eu~proxy-1/journals/region\.journal", places=THREE),
        Kind("`journals.twins/region.journal`", r"eu~proxy-1/journals\.twins/region\.journal", places=THREE),
        Kind("`journals.reached/region.journal`", r"eu~proxy-1/journals\.reached/region\.journal"),
        Kind("`journals/*.reserve`", r"eu~proxy-1/journals/\w+\.reserve"),
        Kind("`journals/mesh.journal`", r"eu~proxy-1/journals/mesh\.journal"),
        Kind("`journals.twins/mesh.journal`", r"eu~proxy-1/journals\.twins/mesh\.journal"),
        Kind("`admin.json`", r"eu~proxy-1/admin\.json"),
        Kind("", f"eu~proxy-1/streams/{_NUMBER}/({_SEGMENT}|manifest)"),
        Kind("`lock`", "eu~(proxy-1|coordinator)/lock"),
        Kind("", r"eu~proxy-1/(damaged|set-aside/.*)"),  # the sentence why; what lies aside was moved there
        Kind("", r"eu~coordinator/(journals|journals\.twins|journals\.reached)/.*"),
    )
    configuration = "eu~proxy-1.toml"
    coordinators = 1

    def __init__(self) -> None:
        self._configurations: Path
        self._before: Any = None

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        place = folder.parent / "region"
        streams = {name: {"owner": "eu", "segment_bytes": 1 << 16} for name in (STREAM, OTHER)}
        with region_processes({"eu": 1}, streams, folder=place, coordinators=self.coordinators) as region:
            asyncio.run(publish(region.url("eu"), 0, _OLDER))
            for node in region.nodes.values():
                node.stop()
            leave_note(region["eu/proxy-1"].data, "127.0.0.1", 1)
            (place / "data").rename(folder / "data")
            self._settle(folder)
            older()
            for each in list(folder.iterdir()):
                each.rename(place / each.name) if each.name == "data" else None
            self._restore(folder, place)
            region.start()
            region.wait_chain("eu", 1)
            asyncio.run(publish(region.url("eu"), _OLDER, _EVENTS))
            for node in region.nodes.values():
                node.kill()
            leave_note(region["eu/proxy-1"].data, "127.0.0.1", 2)
            (place / "data").rename(folder / "data")
            self._settle(folder)
        self._configurations = place
        self._before = self._sight(folder)

    @staticmethod
    def _settle(folder: Path) -> None:
        """The nodes' folders are the world's."""
        for each in (folder / "data").iterdir():
            each.rename(folder / each.name)
        (folder / "data").rmdir()

    @staticmethod
    def _restore(folder: Path, place: Path) -> None:
        (place / "data").mkdir()
        for each in list(folder.iterdir()):
            each.rename(place / "data" / each.name)

    def _sight(self, folder: Path) -> Any:
        return None

    def look(self, folder: Path) -> Outcome:
        with mock.patch.object(proxies, "begin_anew", _anew), told("qanat.proxy", "qanat.files") as said:
            return asyncio.run(self._look(folder, said))

    async def _look(self, folder: Path, said: list[str]) -> Outcome:
        flags = {
            "node.data": str(folder / "eu~proxy-1"),
            "node.listen": "127.0.0.1:0",
            "admin.enabled": False,
        }
        file = self._configurations / self.configuration
        node = ProxyNode(partial(load, ProxySettings, file=file, flags=flags))
        try:
            await node.on_start()
        except Anew as error:
            return Outcome(ANEW, str(error))
        except LocalError as error:
            return Outcome(REFUSED, str(error))
        try:
            log = node.host.streams.streams[STREAM].log
            found: list[bytes] = []
            while len(found) < log.next - 1:
                batches = node.host._history.read(log.stream, len(found) + 1, 1 << 30)
                found += [each for batch in batches for each in batch.payloads().to_pylist()]
            repaired: Any = node.whole_status()["repaired"]
            whole = found == [payload(number) for number in range(_EVENTS)]
            return judged(whole, [*repaired, *said])
        except CorruptLog as error:
            return Outcome(f"{READER} (where there are others it {ANEW})", str(error))
        finally:
            await node.on_stop()


class CoordinatorWorld(ReplicaWorld):
    name = "a coordinator"
    kinds: tuple[Kind, ...] = (
        Kind("`journals/coordinator.journal`", r"eu~coordinator/journals/coordinator\.journal", places=THREE),
        Kind("`journals/coordinator.reserve`", r"eu~coordinator/journals/coordinator\.reserve"),
        Kind(
            "`journals.twins/coordinator.journal`",
            r"eu~coordinator/journals\.twins/coordinator\.journal",
            places=THREE,
        ),
        Kind(
            "`journals.reached/coordinator.journal`",
            r"eu~coordinator/journals\.reached/coordinator\.journal",
        ),
        Kind("`lock`", "eu~(proxy-1|coordinator)/lock"),
        Kind("", r"eu~proxy-1/.*"),
    )
    configuration = "eu~coordinator.toml"

    def _sight(self, folder: Path) -> Any:
        return asyncio.run(self._tree(folder))[0]

    async def _tree(self, folder: Path) -> tuple[Any, list[str]]:
        flags = {"node.data": str(folder / "eu~coordinator"), "node.listen": "127.0.0.1:0"}
        file = self._configurations / self.configuration
        node = CoordinatorNode(
            partial(load, CoordinatorSettings, file=file, flags=flags | {"admin.enabled": False})
        )
        await node.on_start()
        assert node.server is not None
        found = {path: str(each) for path, each in node.server.tree.nodes.items()}
        repaired: Any = node.whole_status()["repaired"]
        await node.on_stop()
        return found, repaired

    async def _look(self, folder: Path, said: list[str]) -> Outcome:
        try:
            tree, repaired = await self._tree(folder)
        except QanatError as error:
            return Outcome(REFUSED, str(error))
        return judged(json.dumps(tree) == json.dumps(self._before), [*repaired, *said])


_MEMBER = "eu~coordinator-1"


class EnsembleWorld(ReplicaWorld):
    """One of three coordinators. The others have what it had; until they have brought it up to date it counts
    for nothing."""

    name = "a coordinator of three"
    kinds: tuple[Kind, ...] = (
        Kind("`journals/ensemble.journal`", f"{_MEMBER}/journals/ensemble\\.journal", places=THREE),
        Kind(
            "`journals.twins/ensemble.journal`",
            f"{_MEMBER}/journals\\.twins/ensemble\\.journal",
            places=THREE,
        ),
        Kind("`journals.reached/ensemble.journal`", f"{_MEMBER}/journals\\.reached/ensemble\\.journal"),
        Kind("`journals/ensemble.reserve`", f"{_MEMBER}/journals/ensemble\\.reserve"),
        Kind("`lock`", f"{_MEMBER}/lock"),
        Kind("", "eu~(proxy-1|coordinator-[23])/.*"),
    )
    configuration = f"{_MEMBER}.toml"
    coordinators = 3

    def _sight(self, folder: Path) -> Any:
        return asyncio.run(self._kept(folder))[0]

    async def _kept(self, folder: Path) -> tuple[Any, list[str]]:
        flags = {"node.data": str(folder / _MEMBER), "node.listen": "127.0.0.1:0", "admin.enabled": False}
        file = self._configurations / self.configuration
        node = CoordinatorNode(partial(load, CoordinatorSettings, file=file, flags=flags))
        await node.on_start()
        assert node.member is not None
        kept, status = node.member.raft.seat.kept, node.whole_status()
        found = (kept.term, kept.whole, kept.log.last_index)
        repaired: Any = status["repaired"]
        aside: Any = status["set_aside"]
        await node.on_stop()
        return found, [*repaired, *(each["why"] for each in aside)]

    async def _look(self, folder: Path, said: list[str]) -> Outcome:
        try:
            found, sentences = await self._kept(folder)
        except QanatError as error:
            return Outcome(REFUSED, str(error))
        if not found[1] and sentences:
            return Outcome(ANEW, sentences[0])
        return judged(found == self._before, [*sentences, *said])


def unknown_of_node(data: Path, kind: str = "proxy-1") -> list[str]:
    """Files of a real replica's, or coordinator's, folder that the page does not have."""
    world = CoordinatorWorld if kind == "coordinator" else ReplicaWorld
    names = (f"eu~{kind}/{path.relative_to(data)}" for path in files(data))
    mine = [each for each in world.kinds if not each.pattern.startswith("eu~proxy-1/.*")]
    return [name for name in names if not any(re.fullmatch(each.pattern, name) for each in mine)]
