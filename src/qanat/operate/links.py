"""The process of links: for drills, traffic between regions passes through it, and you can cut each link."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from qanat.operate.cuts import Cuts
from qanat.runtime.config import Loaded
from qanat.runtime.link_proxy import Direction, LinkProxy
from qanat.runtime.node import Node
from qanat.runtime.node_settings import Settings
from qanat.runtime.settings import setting
from qanat.runtime.url import parse_url

log = logging.getLogger("qanat.links")


class LinkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The link from one region to one replica of another."""

    dialling: Annotated[str, setting("The region whose replicas dial this link.")]
    remote: Annotated[str, setting("The region of the dialled replica.")]
    listen: Annotated[str, setting("Address that they dial.")]
    target: Annotated[str, setting("Address of the dialled replica.")]


class LinksSettings(Settings, frozen=True, forbid_unknown_fields=True):
    """All settings of the process of links."""

    cuts: Annotated[
        str,
        setting(
            'File of the cut links, as `[["eu", "us"]]`: nothing passes from eu to us. It is read on SIGHUP.'
        ),
    ] = "cuts.json"
    links: Annotated[dict[str, LinkSettings], setting("All links by name.", reload=True)] = msgspec.field(
        default_factory=dict
    )


class LinksNode(Node[LinksSettings]):
    """A `LinkProxy` for each (dialling region, remote replica)."""

    def __init__(self, loaded: Callable[[], Loaded[LinksSettings]]) -> None:
        super().__init__(loaded, role="links")
        self._proxies: dict[str, LinkProxy] = {}
        self._running: dict[str, LinkSettings] = {}
        self._changing: asyncio.Task[None] | None = None
        self.url = ""

    async def on_start(self) -> None:
        await self._follow(starting=True)

    async def on_stop(self) -> None:
        if self._changing is not None:
            self._changing.cancel()
        await asyncio.gather(*(proxy.close() for proxy in self._proxies.values()))

    def on_reload(self, applied: list[str]) -> None:
        self._cut()
        before = self._changing
        self._changing = asyncio.create_task(self._follow(before))

    async def _follow(self, before: asyncio.Task[None] | None = None, *, starting: bool = False) -> None:
        """Opens and closes links until they are those of the settings. One that cannot listen is left out; at
        the start that is an error, for another process may have more luck with all of them."""
        if before is not None:
            await asyncio.wait([before])
        wanted = self.settings.links
        for name in [name for name, was in self._running.items() if wanted.get(name) != was]:
            del self._running[name]
            await self._proxies.pop(name).close()
        for name, link in wanted.items():
            if name not in self._running:
                proxy = LinkProxy(*parse_url(link.target))
                self._cut_one(proxy, link, Cuts.load(Path(self.settings.cuts)))
                try:
                    await proxy.start(*parse_url(link.listen))
                except OSError as error:
                    log.error("cannot listen", extra={"link": name, "reason": str(error)})
                    if starting:
                        raise
                    continue
                self._proxies[name], self._running[name] = proxy, link

    def _cut(self) -> None:
        cuts = Cuts.load(Path(self.settings.cuts))
        for name, proxy in self._proxies.items():
            self._cut_one(proxy, self._running[name], cuts)

    def _cut_one(self, proxy: LinkProxy, link: LinkSettings, cuts: Cuts) -> None:
        ways = {
            Direction.THERE: (link.dialling, link.remote),
            Direction.BACK: (link.remote, link.dialling),
        }
        proxy.set_cuts(frozenset(way for way, pair in ways.items() if pair in cuts.pairs))

    def status(self) -> Mapping[str, object]:
        return {
            "links": {
                name: {
                    "from": self._running[name].dialling,
                    "to": self._running[name].remote,
                    "state": _state(proxy),
                    "connections": proxy.connections,
                    "forwarded_bytes": proxy.forwarded_bytes,
                    "queued_bytes": proxy.queued_bytes,
                }
                for name, proxy in self._proxies.items()
            }
        }


def _state(proxy: LinkProxy) -> str:
    if not proxy.cut_directions:
        return "up"
    return "cut" if len(proxy.cut_directions) > 1 else "cut one way"
