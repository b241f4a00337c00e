"""This process as a member of its region's mesh: hears of events from other clients, and passes them on."""

import asyncio
import logging
import random
import secrets
import socket
import time
from typing import Protocol

import msgspec

from qanat.events.batch import Batch
from qanat.kernel import Address, Context
from qanat.protocols.mesh import ClientMeshes, MeshConfig, Subscribe, Unsubscribe
from qanat.protocols.views import UseProxy, ViewsConfig
from qanat.runtime.driver import Driver
from qanat.runtime.listener import CannotListen
from qanat.runtime.members import MESH_CHANNEL, member_name, with_members
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url
from qanat.wire.control import Identity

log = logging.getLogger("qanat.mesh")

_RECEIVE_BYTES = 512 * 1024
"""Largest receive buffer of a connection: a member has some tens of them, and an answer is of 256 KiB."""
_PORTS = 8
"""Free ports that are tried: between finding one and listening there, another process may take it."""


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a client in the mesh; every default has its unit and reason."""

    listen: bool = True
    """Whether other clients may connect to this one. If not, the proxy alone sends it events, and it passes
    none on."""
    host: str = ""
    """Address at which the client listens; empty: that of the interface towards the proxy."""
    advertised: str = ""
    """Host that others dial, if it differs from the address at which the client listens (behind a router that
    forwards the port)."""
    port: int = 0
    """Port for TCP and UDP; 0: any free one."""
    deaf_ms: int = 3_000
    """Time without a datagram after which a new member becomes a visitor: others' views would contain it for
    nothing. The proxy answers the first gossip at once."""
    idle_ms: int = 15_000
    """Time after which an unused connection to another client is closed. Neighbours change every few seconds,
    so a member would otherwise end up connected to every other."""
    probe_ms: int = 5_000
    """Time between two requests to the server for the stream's last number while no events come. A client
    that is behind and gets nothing from the mesh (say, because datagrams are blocked) returns to the server's
    direct service."""
    mesh: MeshConfig = MeshConfig()
    views: ViewsConfig = ViewsConfig()
    """`views.gossip_ms` should equal the proxy's: names in views age by rounds."""


class Taker(Protocol):
    """Who gets what the mesh delivers of one stream."""

    def on_mesh(self, batch: Batch) -> None: ...
    def on_member_ready(self) -> None: ...
    def on_member_lost(self) -> None: ...


class MeshMember:
    """One per client, whatever number of streams it has; begins with the first proxy it hears of."""

    def __init__(self, settings: MeshSettings, transport: TransportSettings | None) -> None:
        self.settings = settings
        self.traffic = Traffic(warns=False)
        self.name = ""
        """By which others know it; empty until it takes part."""
        self.listens = False
        transport = transport or TransportSettings()
        self._transport = msgspec.structs.replace(
            transport,
            short_ways=False,  # members dial each other by TCP
            largest_receive_buffer_bytes=min(transport.largest_receive_buffer_bytes, _RECEIVE_BYTES),
        )
        self._proxy = Address("")
        self._urls: dict[str, Url] = {}
        self._takers: dict[int, dict[Taker, None]] = {}
        self._waiting: dict[Taker, None] = {}
        self._driver: Driver | None = None
        self._machine: ClientMeshes | None = None
        self._starting: asyncio.Task[None] | None = None
        self._deaf: asyncio.TimerHandle | None = None
        self._cluster = ""
        self._closed = False

    @property
    def ready(self) -> bool:
        return self._machine is not None and not self._closed

    def view(self, stream: int) -> list[str]:
        """The other members of a stream's mesh that this one knows."""
        mesh = None if self._machine is None else self._machine.meshes.get(stream)
        return [] if mesh is None else sorted(mesh.membership.view)

    # --- for subscriptions --------------------------------------------------------------------------

    def use_proxy(self, name: str, url: Url, cluster: str) -> None:
        """Subscriptions are served there now: it is the proxy, perhaps another than before."""
        self._urls[name] = url
        moved, self._proxy = self._proxy != name, Address(name)
        if self._machine is not None:
            if moved:
                self._tell(UseProxy(self._proxy))
        elif self._starting is None and not self._closed:
            self._cluster = cluster
            self._starting = asyncio.get_running_loop().create_task(self._start(url))

    def when_ready(self, taker: Taker) -> None:
        self._waiting[taker] = None

    def join(self, stream: int, after: int, taker: Taker) -> bool:
        """Delivers the stream from `after` + 1 on; or, if this client is in its mesh already, from where it
        is there. False if it does not take part yet."""
        if not self.ready:
            return False
        if stream not in self._takers:
            self._takers[stream] = {}
            self._tell(Subscribe(stream, after))
        self._takers[stream][taker] = None
        if self.listens and self._deaf is None:
            delay_s = self.settings.deaf_ms / 1000
            self._deaf = asyncio.get_running_loop().call_later(delay_s, self._hear)
        return True

    def leave(self, stream: int, taker: Taker) -> None:
        self._waiting.pop(taker, None)
        takers = self._takers.get(stream, {})
        if taker in takers:
            del takers[taker]
            if not takers:
                del self._takers[stream]
                self._tell(Unsubscribe(stream))

    async def close(self) -> None:
        self._closed = True
        if self._deaf is not None:
            self._deaf.cancel()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._driver is not None:
            await self._driver.stop()

    # --- inside -------------------------------------------------------------------------------------

    async def _start(self, proxy: Url) -> None:
        """Listens where the proxy can reach us; if that cannot be, takes part as a visitor."""
        host = self.settings.host or await _own_address(proxy) if self.settings.listen else ""
        for _ in range(_PORTS if host else 0):
            port = self.settings.port or _free_port(host)
            name = member_name(secrets.token_hex(4), self.settings.advertised or host, port)
            driver = self._make(name, listens=True)
            try:
                await driver.start(host, port)
            except CannotListen as error:
                log.debug("cannot take part at this port", extra={"reason": str(error)})
                await driver.stop()
                continue
            self._begin(driver, name, listens=True)
            return
        if self.settings.listen:
            log.warning("a mesh client takes part as a visitor: it can listen nowhere", extra={"host": host})
        await self._visit()

    async def _visit(self) -> None:
        name = Address(f"visitor-{secrets.token_hex(8)}")
        driver = self._make(name, listens=False)
        await driver.start_unlisted()
        self._begin(driver, name, listens=False)

    def _hear(self) -> None:
        if not self.traffic.datagrams_in.value and not self._closed:
            log.warning(
                "a mesh client takes part as a visitor: no datagram reaches it", extra={"member": self.name}
            )
            self._starting = asyncio.get_running_loop().create_task(self._hide())

    async def _hide(self) -> None:
        self._lose()
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.stop()
        await self._visit()

    def _make(self, name: str, *, listens: bool) -> Driver:
        settings = self.settings

        def machine(context: Context) -> ClientMeshes:
            asyncio.get_running_loop().call_soon(self._wake)
            self._machine = ClientMeshes(context, settings.mesh, settings.views, self._proxy, listens=listens)
            return self._machine

        driver = Driver(
            Identity(name, time.time_ns() // 1000, self._cluster),
            with_members(self._urls.get),
            settings=self._transport,
            traffic=self.traffic,
            rng=random.Random(secrets.randbits(64)),
            idle_ms=settings.idle_ms if listens else 0,
            on_failure=self._on_failure,
        )
        driver.add(MESH_CHANNEL, "mesh", machine, self._on_delivered, again=True)
        return driver

    def _begin(self, driver: Driver, name: str, *, listens: bool) -> None:
        self._driver, self.name, self.listens = driver, name, listens
        self._wake()

    def _wake(self) -> None:
        if self._driver is not None and self.ready:
            waiting, self._waiting = self._waiting, {}
            for taker in waiting:
                taker.on_member_ready()

    def _on_failure(self, machine: str, reason: str) -> None:
        """What somebody said stopped it: the server serves until it is made anew."""
        asyncio.get_running_loop().call_soon(self._lose)

    def _lose(self) -> None:
        """Whoever took from the mesh takes from the server, and waits to come back."""
        self._machine = None
        takers, self._takers = self._takers, {}
        for taker in [taker for each in takers.values() for taker in each]:
            taker.on_member_lost()

    def _tell(self, request: object) -> None:
        if self._driver is not None:
            self._driver.tell(MESH_CHANNEL, request)

    def _on_delivered(self, batch: Batch) -> None:
        for taker in self._takers.get(batch.stream, ()):
            taker.on_mesh(batch)


async def _own_address(proxy: Url) -> str:
    """Of the interface by which the proxy is reached; empty if there is no way there. Nothing is sent."""
    loop = asyncio.get_running_loop()
    try:
        family, _, _, _, address = (await loop.getaddrinfo(*proxy, type=socket.SOCK_DGRAM))[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        log.debug("no way to the proxy by datagrams", extra={"proxy": str(proxy), "reason": str(error)})
        return ""


def _free_port(host: str) -> int:
    """A port that nobody listens at now; 0 if the address is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            return int(probe.getsockname()[1])
    except OSError:
        return 0
