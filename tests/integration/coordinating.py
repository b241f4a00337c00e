"""Sessions on real sockets, with either coordinator: a party is a driver with one machine that does what it
is told."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from kazoo.client import KazooClient
from tests.servers.zookeeper import TICK_MS, Ensemble
from tests.waiting import DEADLINE_S, until

from qanat.coordinate import Answer, EventKind, Session, SessionConfig
from qanat.coordinate.messages import TO_CLIENT, TO_SERVER
from qanat.coordinate.zookeeper import ZooKeeperAccess
from qanat.kernel import Address, Context, Machine
from qanat.operate.ports import assign
from qanat.replica.coordination import (
    Coordination,
    coordinator_members,
    coordinator_name,
    coordinator_servers,
)
from qanat.replica.coordinator import CoordinatorNode
from qanat.replica.settings import CoordinatorSettings, MemberSettings
from qanat.runtime.clocks import monotonic_us
from qanat.runtime.config import load
from qanat.runtime.driver import Driver
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.runtime.url import parse_url
from qanat.wire.control import Identity

CONFIG = SessionConfig(timeout_ms=4000.0, retry_ms=50.0, zookeeper_tick_ms=TICK_MS)
OPEN = ZooKeeperAccess()
_roots = itertools.count()

Then = Callable[[Answer], None]


class Owner(Machine[Any, Callable[[], None]]):
    """Writes down what its session tells."""

    message_types, sent_types = TO_CLIENT, TO_SERVER

    def __init__(self, config: SessionConfig, server: Sequence[Address], context: Context) -> None:
        super().__init__(context)
        self.session = Session(context, config, server, self)
        self.opened: list[int] = []
        self.told: list[tuple[Any, ...]] = []
        """Events and answers, in order."""
        self.expired = self.leases = 0

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.session.start()

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        self.session.on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        self.session.on_timer(now_us, name)

    def on_request(self, now_us: int, request: Callable[[], None]) -> None:
        request()

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.session.on_link_down(now_us, peer)

    def on_opened(self, session: int) -> None:
        self.opened.append(session)

    def on_expired(self) -> None:
        self.expired += 1
        self.told.append(("expired",))

    def on_event(self, kind: EventKind, path: str) -> None:
        self.told.append((str(kind), path))

    def on_lease(self) -> None:
        self.leases += 1


class Party:
    def __init__(self, name: str, url: str, config: SessionConfig, access: ZooKeeperAccess = OPEN) -> None:
        named = coordinator_name("" if url.startswith("zookeeper") else "test/coordinator", url)
        identity = Identity(name=name, incarnation=time.time_ns() // 1000, role="node")
        members = coordinator_members(named, url)
        self.driver = Driver(identity, lambda peer: members.get(Address(peer)))
        self.driver.add(
            FIRST_MACHINE_CHANNEL, "owner", partial(self._make, config, coordinator_servers(named, url))
        )
        self.coordination = Coordination(self.driver, named, url, config, access)
        self.owner: Owner

    def _make(self, config: SessionConfig, server: Sequence[Address], context: Context) -> Owner:
        self.owner = Owner(config, server, context)
        return self.owner

    @property
    def session(self) -> Session:
        return self.owner.session

    def do(self, action: Callable[[Session], None]) -> None:
        self.driver.tell(FIRST_MACHINE_CHANNEL, lambda: action(self.session))

    async def ask(self, action: Callable[[Session, Then], None]) -> Answer:
        answers: list[Answer] = []

        def then(answer: Answer) -> None:
            self.owner.told.append(("answer", answer))
            answers.append(answer)

        self.do(lambda session: action(session, then))
        await until(lambda: answers, 2 * DEADLINE_S)  # longer than any outage
        return answers[0]

    async def create(self, path: str, data: bytes = b"", **how: bool) -> Answer:
        return await self.ask(lambda session, then: session.create(path, data, then, **how))

    async def set(self, path: str, data: bytes, version: int = -1) -> Answer:
        return await self.ask(lambda session, then: session.set(path, data, version, then))

    async def delete(self, path: str, version: int = -1) -> Answer:
        return await self.ask(lambda session, then: session.delete(path, version, then))

    async def get(self, path: str, *, watch: bool = False) -> Answer:
        return await self.ask(lambda session, then: session.get(path, then, watch=watch))

    async def children(self, path: str, *, watch: bool = False) -> Answer:
        return await self.ask(lambda session, then: session.children(path, then, watch=watch))

    def leased(self) -> bool:
        return self.session.leased(monotonic_us())

    @property
    def events(self) -> list[tuple[str, str]]:
        return [each for each in self.owner.told if each[0] in ("data", "children")]

    async def close(self) -> None:
        if self.driver.failed():
            raise AssertionError(self.driver.failed())
        self.do(lambda session: session.close())
        await self.driver.stop()
        await self.coordination.close()


class Reachable(Protocol):
    @property
    def url(self) -> str: ...


class Backend(Reachable, Protocol):
    async def expire(self, party: Party) -> None:
        """Ends its session, as if its timeout had passed."""

    async def away(self) -> None: ...

    async def back(self) -> None: ...


class Embedded:
    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, 0
        self._node: CoordinatorNode

    @property
    def url(self) -> str:
        return f"qanat://127.0.0.1:{self._port}"

    async def back(self) -> None:
        flags = (
            f"node.listen=127.0.0.1:{self._port}",
            f"node.data={self._folder}",
            "node.name=test/coordinator",
        )
        self._node = CoordinatorNode(
            partial(load, CoordinatorSettings, flags=(*flags, "admin.enabled=false"))
        )
        await self._node.on_start()
        self._port = parse_url(self._node.url).port

    async def away(self) -> None:
        await self._node.on_stop()

    async def expire(self, party: Party) -> None:
        machine = self._node.server
        assert machine is not None
        machine._end(party.session.id)


class Trio:
    """An ensemble of three embedded coordinators, each a node of its own in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = list(assign({}, "abc", 0)[0].values())
        self.nodes: list[CoordinatorNode] = []

    @property
    def url(self) -> str:
        return "qanat://" + ",".join(f"127.0.0.1:{port}" for port in self._ports)

    async def back(self) -> None:
        self.nodes = [self._make(number) for number in range(3)]
        await asyncio.gather(*(node.on_start() for node in self.nodes))

    def _make(self, number: int) -> CoordinatorNode:
        flags = [
            f"node.listen=127.0.0.1:{self._ports[number]}",
            f"node.data={self._folder}-{number + 1}",
            f"node.name=test/coordinator-{number + 1}",
            "admin.enabled=false",
        ]
        peers = {
            f"test/coordinator-{other + 1}": MemberSettings(f"qanat://127.0.0.1:{self._ports[other]}")
            for other in range(3)
            if other != number
        }
        loaded = load(CoordinatorSettings, flags=flags)
        settings = msgspec.structs.replace(loaded.settings, peers=peers)
        return CoordinatorNode(lambda: loaded._replace(settings=settings))

    async def away(self) -> None:
        await asyncio.gather(*(node.on_stop() for node in self.nodes))

    async def expire(self, party: Party) -> None:
        (server,) = [node.server for node in self.nodes if node.server is not None]
        server._end(party.session.id)
        for node in self.nodes:
            if node.member is not None:
                node.member.raft.flush(monotonic_us())


class OnZooKeeper:
    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.url = ensemble.url(f"test/{next(_roots)}")

    async def back(self) -> None:
        self.ensemble.start()
        await asyncio.to_thread(self.ensemble.wait)

    async def away(self) -> None:
        await asyncio.to_thread(self.ensemble.kill)

    async def expire(self, party: Party) -> None:
        await asyncio.to_thread(end_session, self.ensemble, party)


class Gate:
    """A way to the servers of an ensemble. While it is shut nothing passes, either way; what was under way
    passes when it opens, late."""

    def __init__(self, ensemble: Ensemble, root: str) -> None:
        self._ensemble, self._root = ensemble, root
        self._listeners: list[asyncio.Server] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._passing = 0
        self._open = asyncio.Event()
        self._open.set()

    async def start(self) -> None:
        for server in self._ensemble.servers:
            self._listeners.append(
                await asyncio.start_server(partial(self._pass, server.port), "127.0.0.1", 0)
            )

    @property
    def url(self) -> str:
        ports = [each.sockets[0].getsockname()[1] for each in self._listeners]
        return f"zookeeper://{','.join(f'127.0.0.1:{port}' for port in ports)}{self._root}"

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """All connections break at once; others may be made."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    async def _pass(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._passing += 1
        try:
            self._writers.append(writer)
            await self._open.wait()
            from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
            self._writers.append(to_server)
            await asyncio.gather(self._pump(reader, to_server), self._pump(from_server, writer))
        except OSError:
            writer.close()
        finally:
            self._passing -= 1

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        await self._open.wait()
        writer.close()

    async def close(self) -> None:
        """After those who use it."""
        self.open()
        for listener in self._listeners:
            listener.close()
        await until(lambda: self._passing == 0)
        for writer in self._writers:
            writer.close()


def end_session(ensemble: Ensemble, party: Party) -> None:
    """Who knows a session's password can end it."""
    (link,) = party.coordination._links[-1:]
    client: KazooClient = link._client  # type: ignore[attr-defined]
    known = client.client_id
    assert known is not None
    other = KazooClient(ensemble.hosts, client_id=known, timeout=10)
    other.start(30)
    other.stop()
    other.close()


@asynccontextmanager
async def parties(
    backend: Reachable, *names: str, config: SessionConfig = CONFIG
) -> AsyncIterator[list[Party]]:
    """With sessions and leases."""
    made = [Party(f"test/{name}", backend.url, config) for name in names]
    try:
        for party in made:
            await party.driver.start_unlisted()
        for party in made:
            await until(party.leased)
        yield made
    finally:
        for party in made:
            await party.close()
