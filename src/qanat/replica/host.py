"""What is around a replica's machine: its logs and their syncs, publishes on their way, the streams that
clients see."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import assert_never

import msgspec

from qanat.coordinate import Session
from qanat.events.batch import stream_id
from qanat.events.errors import LocalError
from qanat.kernel import Address, Context
from qanat.log import LogConfig
from qanat.log.disk import OsDisk
from qanat.log.errors import CorruptLog
from qanat.log.rekeeping import differing, keep_as
from qanat.protocols.chain import (
    Answered,
    Leave,
    Named,
    Placed,
    Refused,
    Reset,
    Stable,
    Wanted,
    WasReset,
)
from qanat.protocols.chain.records import compact
from qanat.protocols.proxy_level import Unserved
from qanat.protocols.region import Peers, RegionConfig, RegionItem, RegionReplica, StreamsChanged
from qanat.replica.chained_stream import ChainedStream
from qanat.replica.coordination import coordinator_servers
from qanat.replica.damage import ADVICE, DamagedDisk, sentence
from qanat.replica.history import ReplicaHistory
from qanat.replica.settings import LIVE, ProxySettings, StreamSettings
from qanat.replica.status import shortage
from qanat.replica.streams import RegionStreams
from qanat.replica.tickets import Tickets
from qanat.replica.waits import Waiting
from qanat.runtime.clocks import monotonic_us, wall_clock_us
from qanat.runtime.driver import Driver
from qanat.runtime.journal import CorruptJournal, is_there
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.serving.caravan_settings import CaravanControl
from qanat.serving.disk_room import DiskRoom
from qanat.serving.refusals import NotHead, NotTail
from qanat.serving.syncing import Syncing

log = logging.getLogger("qanat.proxy")

MACHINE = "region"
"""Names the machine's journal."""


class ReplicaHost:
    """`settings` gives those of now; `fail` is told why this replica must leave the chain for good, `shown`
    whether its streams are shown here, `room` what its disk refused. Made in a running loop; opens the logs,
    which may block for long."""

    def __init__(
        self,
        settings: Callable[[], ProxySettings],
        data: Path,
        pool: Executor,
        fail: Callable[[str], None],
        shown: Callable[[bool], None],
        room: DiskRoom,
    ) -> None:
        self._settings, self._pool, self._fail, self._shown = settings, pool, fail, shown
        self._loop = asyncio.get_running_loop()
        self._driver: Driver | None = None
        self.machine: RegionReplica | None = None
        self.damaged = ""
        """What a reader found to be damaged, if this replica cannot leave that to others."""
        self._disk = DamagedDisk(data)
        self._history = ReplicaHistory(
            OsDisk(), str(data / "streams"), self._config_of, self._wants_sync, self._on_damaged, room
        )
        self._syncing = Syncing(pool, self._history.logs.get, self.tell, self._disk_failed)
        self.tickets = Tickets(self._request, settings().chain.tickets_max)
        caravans = CaravanControl(settings().caravans)
        self.streams = RegionStreams(
            settings().region.name, self._history, self.tickets, self._on_damaged, caravans
        )
        self.streams.configure(settings().streams)
        self._served_s = 0.0
        region, coordinator = settings().region.name, settings().coordinator.name
        self.waiting = Waiting(region, coordinator or "ZooKeeper", 2 * settings().session.timeout_ms / 1000)
        self._left = False
        self._short: list[str] = []
        self._resets: set[asyncio.Task[None]] = set()
        for stream in self.streams.streams.values():
            for note in stream.log.recovery_notes:
                log.warning("recovered", extra={"stream": stream.name, "note": note})

    def add_to(self, driver: Driver, journals: Path) -> None:
        """Raises `CorruptJournal` if what the machine kept is gone and what it stored is there: it notes that
        it has something to keep before it stores anything."""
        if self._history.streams() and not is_there(journals / f"{MACHINE}.journal"):
            raise CorruptJournal(
                f"{journals / MACHINE}.journal is gone, and so is its twin, though there are streams"
            )
        self._driver = driver
        driver.add(
            FIRST_MACHINE_CHANNEL,
            MACHINE,
            self._make_machine,
            self._on_delivered,
            compact=compact,
            vouched=True,
        )

    def reload(self, applied: list[str]) -> None:
        settings = self._settings()
        self.streams.caravans.say(settings.caravans)
        if "streams" in applied:
            for name in self.streams.configure(settings.streams):
                self._keep_as(self.streams.streams[name], settings.streams[name])
            self.tell(StreamsChanged(self.streams.owners))
        if "peers" in applied:
            self.tell(Peers(self._remote()))
            if self.machine is not None:
                self.tell(Named(self._named(self.machine.context.address)))
        if "region.replicas" in applied:
            self.tell(Wanted(settings.region.replicas))

    def _keep_as(self, stream: ChainedStream, settings: StreamSettings) -> None:
        """Changes what can be changed in a log that is in use; a new policy is learnt by reading the log, in
        a thread."""
        if differing(stream.log.config, settings) - LIVE:
            log.warning(
                "some of how the stream is kept changes with a restart", extra={"stream": stream.name}
            )

        def done(future: "asyncio.Future[None]") -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                reason = {"stream": stream.name, "reason": str(error)}
                log.error("the stream is kept as before", extra=reason)

        work = partial(keep_as, stream.log, settings, LIVE)
        self._loop.run_in_executor(self._pool, work).add_done_callback(done)

    def leave(self) -> None:
        """Without it the chain would stand still until the session has timed out."""
        self.tell(Leave())
        self.streams.show(False)

    async def close(self) -> None:
        """After the driver stopped."""
        await self._syncing.close()
        for stream in self.streams.all.values():
            stream.stop_delivery()
        await asyncio.to_thread(self._pool.shutdown)
        await asyncio.to_thread(self._history.close)

    # --- the machine --------------------------------------------------------------------------------

    def _make_machine(self, context: Context) -> RegionReplica:
        settings = self._settings()
        session = settings.session
        servers = coordinator_servers(settings.coordinator.name, settings.coordinator.url)
        chain = msgspec.structs.replace(settings.chain, replicas=settings.region.replicas)
        self.machine = RegionReplica(
            context,
            RegionConfig(chain, settings.proxy_level),
            self._history,
            lambda context, listener: Session(context, session, servers, listener),
            region=settings.region.name,
            owners=self.streams.owners,
            remote=self._remote(),
            folder=f"/chains/{settings.region.name}",
            wary_us=session.outlasts_us(round(session.timeout_ms * 1000)),
            named=self._named(context.address),
        )
        return self.machine

    def _named(self, me: str) -> tuple[str, ...]:
        """The replicas of this region."""
        ours = f"{self._settings().region.name}/"
        return (me, *(name for name in sorted(self._settings().peers) if name.startswith(ours)))

    def _remote(self) -> tuple[Address, ...]:
        """The replicas of other regions."""
        settings = self._settings()
        ours = f"{settings.region.name}/"
        return tuple(Address(name) for name in sorted(settings.peers) if not name.startswith(ours))

    def _config_of(self, stream: int) -> LogConfig:
        for name, settings in self._settings().streams.items():
            if stream_id(name) == stream:
                return settings
        return LogConfig()

    def _request(self, request: object) -> None:
        """A machine that is stopping, or whose disk is behind, is nobody's head: its clients ask again."""
        try:
            if self._driver is not None:
                self._driver.request(FIRST_MACHINE_CHANNEL, request)
        except LocalError as error:
            raise NotHead(str(error)) from error

    def tell(self, news: object) -> None:
        if self._driver is not None:
            self._driver.tell(FIRST_MACHINE_CHANNEL, news)

    def _wants_sync(self, stream: int) -> None:
        self._syncing.wants(stream)

    def _disk_failed(self, error: BaseException) -> None:
        self._fail(f"the disk failed under a sync: {error}")

    def _on_damaged(self, stream: int, error: CorruptLog) -> LocalError:
        """A reader found damage. If the chain has other members this replica leaves, so that it may begin
        anew from what they have; if not, it goes on with what is whole. Returns what the reader is told."""
        known = self.streams.all.get(stream)
        why = sentence(error, "" if known is None else known.name)
        chain = None if self.machine is None else self.machine.chain
        # Confirmed or not: a replica that leaves without its mark would come back with the damage.
        if chain is not None and chain.configuration is not None:
            others = [each.address for each in chain.configuration.replicas if each != chain.me]
            if others:
                with suppress(LocalError):  # a full disk: the next life finds the damage again
                    self._disk.mark(why)
                self._fail(
                    f"{why}; {', '.join(others)} has it, so this replica begins anew when it is started again"
                )
                return NotTail(f"{why}; ask another replica")
        if not self.damaged:
            self.damaged = f"{why}, and no other replica has it: {ADVICE}"
            log.error("damaged", extra={"reason": self.damaged})
        return error

    def _on_delivered(self, item: RegionItem) -> None:
        """What the machine says; it is in the middle of something, so it is answered later."""
        match item:
            case Answered() | Refused():
                self.tickets.on_outcome(item)
            case Stable():
                stream = self.streams.all.get(item.stream)
                if stream is not None:
                    stream.on_stable(item.upto)
                    self.look()
            case Placed():
                self.streams.on_placed(item)
                self.look()
                log.info("placed", extra={"epoch": item.epoch, "head": item.head, "tail": item.tail})
            case Reset():
                task = self._loop.create_task(self._reset(item.stream))
                self._resets.add(task)
                task.add_done_callback(self._reset_done)
            case Unserved():
                stream = self.streams.all.get(item.stream)
                log.error(
                    "a source no longer has what comes next",
                    extra={
                        "stream": "?" if stream is None else stream.name,
                        "first": item.first,
                        "last": item.last,
                    },
                )
            case _:
                assert_never(item)

    async def _reset(self, number: int) -> None:
        """Its history is not the chain's: away with it, then anew."""
        stream = self.streams.all.get(number)
        log.warning("stream begins anew", extra={"stream": number if stream is None else stream.name})
        detached = self._history.detach(number)
        await self._loop.run_in_executor(self._pool, self._history.wipe, number, detached)
        if stream is not None:
            stream.replace_log(self._history.open(number))
        self.tell(WasReset(number))

    def _reset_done(self, task: "asyncio.Task[None]") -> None:
        """Whatever it was, a stream that is neither what it was nor empty cannot stay in a chain."""
        self._resets.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"a stream could not be wiped: {error}")

    # --- care ---------------------------------------------------------------------------------------

    def look(self) -> None:
        """A tail shows while it may serve. It may not for a moment now and then, when its lease is late or it
        hands over; only when that lasts are listeners told to look elsewhere."""
        machine, now_s = self.machine, self._loop.time()
        if machine is not None and machine.manager.apart and not self._left:
            self._left = True
            self._begin_anew(machine.manager.apart)
        if machine is not None and self._short != (short := shortage(machine, self.name_of)):
            self._short = short
            log.error("less is there than there was", extra={"reason": "; ".join(short)})
        leased = machine is not None and machine.session.leased(monotonic_us())
        if self.waiting.look(now_s, machine, leased):
            log.error("the chain stands still", extra={"reason": self.waiting.why})
        self.streams.waits = self.waiting.at_once
        if machine is not None and machine.chain.serves(monotonic_us()):
            self._served_s = now_s
            self.streams.show(True)
        elif now_s - self._served_s > self._settings().session.timeout_ms / 1000:
            self.streams.show(False)
        self._shown(self.streams.shows)

    def _begin_anew(self, why: str) -> None:
        """What it holds is no part of the chain's history: the next life sets it aside, where people find
        it."""
        with suppress(LocalError):
            self._disk.mark(why)
        self._fail(f"{why}; it begins anew when it is started again, and what it held is set aside")

    def name_of(self, stream: int) -> str:
        known = self.streams.all.get(stream)
        return f"{stream:#x}" if known is None else known.name

    def answers(self) -> bool:
        """Whether this is the head, and a publish that comes now will be answered before long: none waits for
        longer than what a chain mends by itself takes."""
        settings, machine = self._settings(), self.machine
        patience_s = (settings.chain.failure_ms + 2 * settings.session.timeout_ms) / 1000
        ready = machine is not None and machine.chain.answers(monotonic_us())
        return ready and self.tickets.oldest_s < patience_s

    def why_publishes_wait(self) -> str:
        """For what, or for whom; empty if they do not, or as far as is known here."""
        return self.waiting.at_once or ("" if self.machine is None else self.machine.chain.follower_lacks)

    async def collect(self) -> None:
        """One round of garbage collection, in a thread; and for silent streams of this region's, the event
        that begins it."""
        for stream in list(self.streams.all.values()):
            number = stream.log.stream
            # Each by itself: where no event can be published, as on a full disk, collecting is what makes
            # room.
            with self._reported("expiry failed", number, stream.name):
                if number in self.streams.by_id:
                    stream.expire(wall_clock_us())
            with self._reported("collection failed", number, stream.name):
                settled = 0 if self.machine is None else self.machine.chain.settled(number)
                await self._loop.run_in_executor(
                    self._pool, partial(stream.log.collect, settled=settled, now_us=wall_clock_us())
                )

    @contextmanager
    def _reported(self, what: str, number: int, name: str) -> Iterator[None]:
        """The next stream, and the next round, are tended all the same."""
        try:
            yield
        except CorruptLog as error:
            self._on_damaged(number, error)
        except Exception as error:
            log.exception(what, extra={"stream": name, "reason": str(error)})
