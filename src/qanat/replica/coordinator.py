"""The coordinator of a region as a process: the only one, or one of the three of an ensemble."""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from qanat.coordinate import CoordinatorServer
from qanat.coordinate.ensemble import EnsembleMember, News
from qanat.coordinate.tree import compact
from qanat.events.errors import LocalError
from qanat.kernel import Address, Context
from qanat.protocols.raft import compact as compact_ensemble
from qanat.replica.damage import JOURNALS, STATE, DamagedDisk, SetAside
from qanat.replica.settings import CoordinatorSettings
from qanat.runtime.config import Loaded
from qanat.runtime.driver import Driver
from qanat.runtime.folder_lock import lock_folder
from qanat.runtime.journal import CorruptJournal, is_there, twin_of
from qanat.runtime.node import Node
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.runtime.url import Url, parse_url
from qanat.serving.disk_room import DiskRoom

log = logging.getLogger("qanat.coordinator")

ALONE, ENSEMBLE = "coordinator", "ensemble"
"""Names of the machines, and so of their journals: what one keeps, the other does not understand."""
OTHERS = (b"/publishers", b"/balance")
"""What lies in a coordinator beside chains: names of nodes whose content nobody else keeps."""


def _log_news(news: News) -> None:
    if news.waits:
        log.error("no leader", extra={"waits": news.waits})
    elif news.leader:
        extra = {"leader": news.leader, "term": news.term}
        log.info("has a leader" if news.whole else "has a leader, and does not count yet", extra=extra)


def journal_of(data: Path, machine: str) -> Path:
    return data / JOURNALS / f"{machine}.journal"


class CoordinatorNode(Node[CoordinatorSettings]):
    """Its sessions dial it; it dials nobody but the other members of its ensemble."""

    def __init__(self, loaded: Callable[[], Loaded[CoordinatorSettings]]) -> None:
        super().__init__(loaded)
        self.data = Path(self.settings.node.data).absolute()
        self.failure = ""
        self.alone: CoordinatorServer | None = None
        self.member: EnsembleMember | None = None
        self._url: Url | None = None
        self._lock: int | None = None
        self._set_aside: list[SetAside] = []
        self.room = DiskRoom(
            self.identity.name,
            self.data,
            "leases are renewed and changes are written while what was set aside for them lasts",
        )
        self.driver = self._make_driver()
        self.memory.add("tree", lambda: 0 if self.server is None else self.server.tree.held_bytes)
        self.memory.add("watches", lambda: 0 if self.server is None else self.server.watched_bytes)

    def _make_driver(self) -> Driver:
        driver = self.make_driver(
            self._book,
            folder=self.data / JOURNALS,
            on_failure=lambda machine, reason: self._fail(reason),
        )
        driver.on_room = self.room.journal
        if self.settings.peers:
            driver.add(
                FIRST_MACHINE_CHANNEL,
                ENSEMBLE,
                self._make_member,
                _log_news,
                compact=compact_ensemble,
                vouched=True,
            )
        else:
            driver.add(FIRST_MACHINE_CHANNEL, ALONE, self._make_alone, compact=compact, vouched=True)
        return driver

    @property
    def server(self) -> CoordinatorServer | None:
        """The tree and its sessions, if they are here: of an ensemble, the leader has them."""
        return self.alone if self.member is None else self.member.server

    @property
    def url(self) -> str:
        return "" if self._url is None else str(self._url)

    async def on_start(self) -> None:
        self._lock = lock_folder(self.data)
        self._check_which()
        disk, listen = DamagedDisk(self.data), parse_url(self.settings.node.listen)
        if marked := disk.marked():
            disk.set_aside(marked)
        try:
            self._url = await self.driver.start(*listen)
        except CorruptJournal as error:
            await self.driver.stop()
            self._forget(disk, error)
            self.driver = self._make_driver()
            self._url = await self.driver.start(*listen)
        self._set_aside = disk.lying()
        log.info("listening", extra={"url": self.url, "data": str(self.data)})

    def _check_which(self) -> None:
        """One that was alone is no member of an ensemble, and a member does not serve alone: both would
        forget all they know."""
        mine, other = (ENSEMBLE, ALONE) if self.settings.peers else (ALONE, ENSEMBLE)
        if is_there(journal_of(self.data, other)) and not is_there(journal_of(self.data, mine)):
            was = "served alone" if other == ALONE else "was one of an ensemble"
            raise LocalError(
                f"the coordinator in {self.data} {was}: `qanat coordinator begin` makes what it knows the"
                " beginning of the other kind, or set [peers] as it was"
            )

    def _forget(self, disk: DamagedDisk, error: CorruptJournal) -> None:
        """A journal that lost what it once had is no authority: it is set aside, and this coordinator begins
        empty. The replicas of its chains know what it has forgotten. What publishers agree on is nowhere
        else, so with that it does not start."""
        if (
            self.settings.peers
        ):  # the others have what it had, and it counts for nothing before they have brought it up to date
            aside = disk.set_aside(str(error))
            log.error(
                "set aside, and begins anew behind the others",
                extra={"reason": aside.why, "folder": aside.folder},
            )
            return
        path = journal_of(self.data, ALONE)
        left = [file.read_bytes() for file in (path, twin_of(path)) if file.exists()]
        if any(name in data for data in left for name in OTHERS):
            raise CorruptJournal(
                f"{error}; it holds what publishers agreed on, which nobody else has: restore its files from"
                f" a backup, or give that up by moving {', '.join(STATE[:3])} out of {self.data}; then start"
                " it again"
            ) from error
        aside = disk.set_aside(str(error))
        log.error("set aside, and begins empty", extra={"reason": aside.why, "folder": aside.folder})

    async def on_stop(self) -> None:
        await self.driver.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_alone(self, context: Context) -> CoordinatorServer:
        self.alone = CoordinatorServer(context, self.settings.server)
        return self.alone

    def _make_member(self, context: Context) -> EnsembleMember:
        members = [Address(name) for name in sorted([self.settings.node.name, *self.settings.peers])]
        lost = bool(DamagedDisk(self.data).lying())
        settings = self.settings
        self.member = EnsembleMember(context, settings.server, settings.raft, members, lost=lost)
        return self.member

    def _book(self, name: str) -> Url | None:
        peer = self.settings.peers.get(name)
        return None if peer is None else parse_url(peer.url)

    def _fail(self, reason: str) -> None:
        """Its journal failed, or it has a bug: what it knows is on disk, so it ends and may be started
        again."""
        self.failure = reason
        self.stop()

    def healthy(self) -> str | None:
        return self.failure or super().healthy() or self.room.sentence or None

    def status(self) -> Mapping[str, object]:
        server = self.server
        ensemble = None if self.member is None else self.member.raft.status()
        return {
            "url": self.url,
            "data": str(self.data),
            "disk_full": self.room.sentence,
            "pid": os.getpid(),
            "set_aside": msgspec.to_builtins(self._set_aside),
            "sessions": 0 if server is None else len(server.tree.sessions),
            "nodes": 0 if server is None else len(server.tree.nodes),
            "ensemble": None if ensemble is None else msgspec.to_builtins(ensemble),
        }
