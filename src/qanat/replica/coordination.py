"""How a node reaches its coordinator: by the wire, or, where its URL is `zookeeper://…`, over a bridge in the
node's own process."""

import asyncio
from functools import partial
from typing import cast

from qanat.coordinate import SessionConfig
from qanat.coordinate.messages import ToServer
from qanat.coordinate.zookeeper import (
    SCHEME,
    Bridge,
    Keys,
    Link,
    LinkListener,
    ZooKeeperAccess,
    ZooKeeperAddress,
)
from qanat.events.errors import LocalError
from qanat.kernel import Address, Message
from qanat.runtime.driver import Driver
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.runtime.url import BadUrl, Url, parse_urls

_END_S = 5.0
"""How long a node that stops waits until ZooKeeper has heard that its session is over; if it does not, that
ends by its timeout."""


def is_zookeeper(url: str) -> bool:
    return url.strip().lower().startswith(f"{SCHEME}://")


def coordinator_name(name: str, url: str) -> str:
    """Of the peer to whom a session speaks. ZooKeeper has none, so it may be left out."""
    return name or (SCHEME if is_zookeeper(url) else "")


def coordinator_members(name: str, url: str) -> dict[Address, Url]:
    """Who serves there, and where each is dialled: the one, or the three of an ensemble. Nobody for
    ZooKeeper, which is in this process."""
    if is_zookeeper(url):
        return {}
    urls = parse_urls(url)
    if len(urls) == 1:
        return {Address(name): urls[0]}
    if len(urls) != 3:
        raise ValueError(
            f"url has {len(urls)} addresses: a coordinator is one process, or an ensemble of three"
        )
    return {Address(f"{name}-{number}"): each for number, each in enumerate(urls, start=1)}


def check_coordinator(name: str, url: str) -> None:
    """Raises `ValueError` for a URL that is none, as settings do."""
    try:
        coordinator_members(name, url)
    except BadUrl as error:
        raise ValueError(str(error)) from None


def coordinator_servers(name: str, url: str) -> tuple[Address, ...]:
    """To whom a session speaks, in turn until one serves."""
    return tuple(coordinator_members(name, url)) or (Address(coordinator_name(name, url)),)


class Coordination:
    """Made before the driver starts; `close` it after the driver has stopped. Does nothing if the coordinator
    is not ZooKeeper."""

    def __init__(
        self, driver: Driver, name: str, url: str, session: SessionConfig, access: ZooKeeperAccess
    ) -> None:
        self._bridge: Bridge | None = None
        self._links: list[Link] = []
        if not is_zookeeper(url):
            return
        self._loop = asyncio.get_running_loop()
        self._address = ZooKeeperAddress.parse(url)
        try:
            from qanat.coordinate.zookeeper import kazoo_link
        except ImportError as error:
            raise LocalError(
                f"{url}: the library kazoo is not installed; `pip install qanat[zookeeper]`"
            ) from error
        self._keys: Keys = access.keys()
        self._link_type = kazoo_link.KazooLink
        peer = Address(coordinator_name(name, url))
        self._bridge = Bridge(
            self._connect,
            partial(driver.hear, FIRST_MACHINE_CHANNEL, peer),
            root=self._address.root,
            tick_us=round(session.zookeeper_tick_ms * 1000),
        )
        driver.neighbours[peer] = self._take

    @property
    def problem(self) -> str:
        """Why ZooKeeper does not let this node in; empty if it does, or is away."""
        return "" if self._bridge is None else self._bridge.refusal

    def _take(self, message: Message) -> None:
        if self._bridge is not None:
            self._bridge.on_message(cast(ToServer, message))  # a session says nothing else to its coordinator

    def _connect(self, timeout_us: int, listener: LinkListener) -> Link:
        self._links = [each for each in self._links if not each.ended(0)]
        link = self._link_type(
            self._address, self._keys, timeout_us, listener, self._loop.call_soon_threadsafe
        )
        self._links.append(link)
        return link

    async def close(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
            for link in self._links:
                await asyncio.to_thread(link.ended, _END_S)
