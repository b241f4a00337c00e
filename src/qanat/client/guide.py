"""Which servers a client talks to: the head of a region's chain, its tail, or one server that is both.

The first server that answers is taken for both, so that one which stands alone costs no question first:
requests go out behind the question `place`. If the answer names others, requests move there before the
server's refusals of them are looked at. The same happens after a loss, and when a server says that it is not,
or no longer, the one for this.

| what is known | what is done |
|---|---|
| nothing | the next of all known endpoints is dialled, connected ones first; it is asked for the place |
| the place, and a wanted role has no link | who holds that role is dialled |
| all wanted roles have a link | nothing |

Endpoints are those given, and those that the last place named. Between attempts there are growing pauses with
jitter; when some wanted role has not been served for `patience_ms`, from the first attempt on, the client
gives up. After a second of that it says so in the log, which a program without logging shows on its standard
error. With a patience of 0 it gives up after one round in vain.
"""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from qanat.client.endpoints import Endpoints
from qanat.client.errors import Unavailable
from qanat.client.link import Link, RoleName
from qanat.client.role import Role
from qanat.events.errors import InvariantError, QanatError, RemoteError
from qanat.runtime.backoff import Backoff
from qanat.runtime.dialer import CannotConnect, dial
from qanat.runtime.service import STREAMS_CHANNEL, Closed, Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.streams import Place

log = logging.getLogger("qanat.client")

_TRY_MS = 1_000
"""For one of several endpoints to answer before the next is tried; doubled with each round."""
_SOON_LIMIT_MS, _SOON = 200, 12
"""Longest of the first pauses between attempts in a region, and how many of them there are: a chain whose
head is dead has another one in some tenths of a second."""
_PAUSE_LIMIT_MS = 1_000
"""Longest of those that follow: whatever it waits for takes seconds."""
_TELL_MS = 1_000
"""So long something is waited for before that is told: what a chain mends by itself is nobody's concern."""

_REGION_HEARTBEAT_MISSES = 2
"""Silent heartbeats after which a replica counts as gone: there are others, and a false alarm costs a
question."""


class Guide:
    """Finds the servers and keeps links to them. `on_failed` is called once, when patience ends."""

    def __init__(
        self,
        endpoints: tuple[Url, ...],
        identity: Identity,
        roles: tuple[Role, Role],
        *,
        patience_ms: int,
        on_failed: Callable[[QanatError], None],
        transport: TransportSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.endpoints = Endpoints(endpoints)
        self.place: Place | None = None
        """As last told; None while it is not known, or in doubt."""
        self.region = ""
        """As last told."""
        self.links: dict[str, Link] = {}
        """By the name of the server."""
        self.last_error: RemoteError | None = None
        self._identity, self._roles = identity, roles
        self._patience_ms, self._on_failed = patience_ms, on_failed
        self._transport = transport or TransportSettings()
        self._hasty = transport is None
        self._rng = rng or random.Random()
        self._backoff = Backoff(self._transport.backoff_ms, self._transport.backoff_limit_ms, self._rng)
        self._requests: Iterator[int] = itertools.count(1)
        self._owners: Mapping[str, str] = {}
        self._closing: set[Link] = set()
        self._turn = self._rounds = self._answers = 0
        self._pause = False
        self._in_vain = False
        """Whether all candidates were tried, and what was wanted was not found."""
        self._changed = asyncio.Event()
        self._heard = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._tell: asyncio.TimerHandle | None = None
        self._told_s: float | None = None
        """When it was said that somebody is waited for."""
        self._task: asyncio.Task[None] | None = None

    # --- for the client -----------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name=f"guide to {self.endpoints}")
        self._task.add_done_callback(self._ended)
        self._watch()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Only a fault of ours ends it by itself: nobody shall wait for it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the guide failed", exc_info=error)
            self._on_failed(InvariantError(f"the client cannot go on: {type(error).__name__}: {error}"))

    async def stop(self) -> None:
        """Closes all links, sending what is queued, and dials no more."""
        self._lose_no_patience()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        links = [*self.links.values(), *self._closing]
        for link in links:
            link.connection.close("closed")
        for link in links:
            await link.connection.wait_closed()

    def want(self, role: Role, wanted: bool) -> None:
        if role.wanted != wanted:
            role.wanted = wanted
            self._look()

    async def changed(self) -> None:
        """Until a link came or went, or an attempt failed."""
        self._heard.clear()
        await self._heard.wait()

    def tell(self) -> None:
        """Whoever waits for a change looks again."""
        self._heard.set()

    # --- what links say -----------------------------------------------------------------------------

    def on_up(self, link: Link) -> None:
        self._enter(link, link.name)
        link.ask_place()
        if self.place is None:
            for role in self._roles:
                if role.link is None:
                    role.give(link)
        self._look()

    def on_down(self, link: Link, reason: Closed) -> None:
        self._closing.discard(link)
        if self.links.get(link.name) is link:
            del self.links[link.name]
            self.last_error = CannotConnect(reason.code, f"the connection to {link.name} ended ({reason})")
            self._drop(link)
            self._look()

    def on_place(self, link: Link, place: Place) -> None:
        if self.links.get(link.name) is not link:
            return  # on its way out
        self._answers += 1
        if place.me != link.name:  # the name it goes by in its region
            del self.links[link.name]
            self._enter(link, place.me)
        known = self.place
        if known is not None and known.region == place.region and place.epoch < known.epoch:
            return  # someone who has not heard yet
        self.place = place
        self.region = place.region
        self._owners = place.streams
        self.endpoints.learn(place.replicas)
        link.connection.settings = self._settings()
        for role in self._roles:
            if role.link is not None and role.link.name != role.holder(place):
                role.take_away()
        self._look()

    def on_served(self, link: Link, role_name: RoleName) -> None:
        role = self._role(role_name)
        if role.link is link:
            role.doubted = False
            self._changed.set()
            self._watch()

    def on_misplaced(self, link: Link, role_name: RoleName, why: str) -> None:
        role = self._role(role_name)
        if role.link is not link:
            return
        role.take_away()
        role.doubted = True
        self.last_error = Unavailable(f"{link.name} refused: {why}")
        self.place = None
        self._pause = True
        self._look()

    def doubts(self, role_name: RoleName) -> bool:
        return self._role(role_name).doubted

    def owner_of(self, stream: str) -> str:
        return self._owners.get(stream, "")

    # --- inside -------------------------------------------------------------------------------------

    def _role(self, name: RoleName) -> Role:
        return self._roles[0] if self._roles[0].name == name else self._roles[1]

    def _enter(self, link: Link, name: str) -> None:
        """Under that name; another link to the same server, by another address, makes way."""
        former = self.links.get(name)
        link.name = name
        self.links[name] = link
        if former is not None:
            self._see_off(former)
            for role in self._roles:
                if role.link is former:
                    role.take_away()
                    role.give(link)

    def _see_off(self, link: Link) -> None:
        self._closing.add(link)
        link.connection.close("closed")

    def _drop(self, link: Link) -> None:
        """A link is gone: its roles have to be found anew."""
        for role in self._roles:
            if role.link is link:
                role.take_away()
                self.place = None
                self._pause = True

    def _look(self) -> None:
        """Something changed: the task looks whether there is something to do, and patience whether to
        begin."""
        self._changed.set()
        self._heard.set()
        self._watch()

    def _lacking(self) -> list[Role]:
        return [role for role in self._roles if role.wanted and role.link is None]

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            if self.links and not self._lacking():
                if not any(role.doubted for role in self._roles):
                    self._backoff.reset()
                    self._turn = self._rounds = 0
                    self._pause = self._in_vain = False
                self._prune()
                await self._changed.wait()
                continue
            if self._pause and self.place is None:
                self._pause = False
                await asyncio.sleep(self._pause_ms() / 1000)
            try:
                await (self._search() if self.place is None else self._fill(self.place))
            except RemoteError as error:
                self.last_error = error
                self.place = None
                self._in_vain = self._rounds > 0
                self._heard.set()
                self._watch()

    def _pause_ms(self) -> float:
        limit_ms = _SOON_LIMIT_MS if self._backoff.failures < _SOON else _PAUSE_LIMIT_MS
        pause_ms = self._backoff.next_ms()
        if len(self.endpoints) > 1:
            pause_ms = min(pause_ms, limit_ms * (1 - self._rng.random() / 2))
        return pause_ms

    async def _search(self) -> None:
        """Asks the next of all known endpoints where head and tail are."""
        candidates = self._candidates()
        candidate = candidates[self._turn % len(candidates)]
        self._turn += 1
        if self._turn % len(candidates) == 0:
            self._rounds += 1
            self._pause = True
        limit_s, answers = self._limit_s(len(candidates)), self._answers
        try:
            if isinstance(candidate, Url):
                await self._dial(candidate, limit_s)
            else:
                candidate.ask_place()
            async with asyncio.timeout(limit_s):
                while self._answers == answers and self.links:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Unavailable(f"{candidate} does not say where head and tail are") from None

    def _candidates(self) -> list[Link | Url]:
        live = [link for link in self.links.values() if not link.connection.closing]
        return [*live, *self.endpoints.besides(link.name for link in live)]

    async def _fill(self, place: Place) -> None:
        """Links to who holds the roles that lack one."""
        for role in self._lacking():
            name = role.holder(place)
            link = self.links.get(name)
            if link is None:
                link = await self._dial(self._address(name, role), self._limit_s(len(place.replicas)))
            if self.place is not place:
                return
            if link.name != name:
                raise Unavailable(f"{link.name} answers where {name} was said to be")
            if role.link is None:
                role.give(link)
        self._watch()

    def _address(self, name: str, role: Role) -> Url:
        url = self.endpoints.pop(name)
        if url is None:
            self._pause = True
            raise Unavailable(
                f"it is not known where {name} is" if name else f"the region has no {role.name} now"
            )
        return url

    def _limit_s(self, choices: int) -> float:
        limit_ms = self._transport.handshake_ms
        return (limit_ms if choices <= 1 else min(limit_ms, _TRY_MS << min(self._rounds, 10))) / 1000

    def _settings(self) -> TransportSettings:
        """Those given; else the defaults, and in a region less patience with silence."""
        if self._hasty and len(self.endpoints) > 1:
            return msgspec.structs.replace(self._transport, heartbeat_misses=_REGION_HEARTBEAT_MISSES)
        return self._transport

    async def _dial(self, url: Url, limit_s: float) -> Link:
        link = Link(self, self._requests, url)
        services: Mapping[int, Service] = {STREAMS_CHANNEL: link}
        try:
            async with asyncio.timeout(limit_s):
                await dial(url, self._identity, services, settings=self._settings())
        except TimeoutError:
            raise CannotConnect("timeout", f"{url} did not answer within {limit_s:g} s") from None
        self.endpoints.reached(link.name, url)
        return link

    def _prune(self) -> None:
        """Closes links that serve nothing: those which only showed the way."""
        roles = self._roles
        if len(self.links) < 2 or self.place is None:
            return
        for role, other in (roles, roles[::-1]):
            if not role.wanted and other.wanted and role.link is not other.link:
                role.take_away()
        used = {role.link for role in roles}
        for link in list(self.links.values()):
            if link not in used and not link.busy and len(self.links) > 1:
                del self.links[link.name]
                self._see_off(link)

    # --- patience -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        troubled = not self.links or any(
            role.wanted and (role.link is None or role.doubted) for role in self._roles
        )
        if not troubled:
            self._lose_no_patience()
            if self._told_s is not None:
                log.warning(
                    "found it after %.1f s: going on", time.monotonic() - self._told_s + _TELL_MS / 1000
                )
                self._told_s = None
        elif self._patience is None and self._task is not None and (self._patience_ms or self._in_vain):
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._patience_ms / 1000, self._lose_patience)
            if self._patience_ms > _TELL_MS:
                self._tell = loop.call_later(_TELL_MS / 1000, self._tell_of_waiting)

    def _lose_no_patience(self) -> None:
        for timer in (self._patience, self._tell):
            if timer is not None:
                timer.cancel()
        self._patience = self._tell = None

    def _tell_of_waiting(self) -> None:
        self._told_s = time.monotonic()
        log.warning(
            "waiting up to %g s for a %s: %s", self._patience_ms / 1000, self._missing(), self._last_words()
        )

    def _lose_patience(self) -> None:
        self._lose_no_patience()
        if self._task is not None:
            self._task.cancel()
        waited = f" for {self._patience_ms / 1000:g} s" if self._patience_ms else ""
        # Who never was connected has sent nothing that could have been done.
        definite = not self.endpoints.any_reached
        self._on_failed(
            Unavailable(f"no {self._missing(' found by')}{waited}: {self._last_words()}", definite=definite)
        )

    def _missing(self, by: str = " by way of") -> str:
        lacking = [role.name for role in self._roles if role.wanted] if self.links else []
        return f"{' or '.join(lacking)}{by} {self.endpoints}" if lacking else f"server at {self.endpoints}"

    def _last_words(self) -> str:
        return str(self.last_error or "silence")
