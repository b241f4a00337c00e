"""Publishers, subscribers and a log under the simulator: what is around the machines."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from qanat.checks.publisher_ledger import Ledger, rows_of, session_of
from qanat.checks.publisher_log import SimLog, batch_of, mark_of
from qanat.checks.publisher_tables import SimTables
from qanat.coordinate import CoordinatorServer, ServerConfig, Session, SessionConfig
from qanat.events.position import Position
from qanat.kernel import Address, Context, Factory, Machine, require
from qanat.protocols.publisher.config import (
    EARLIEST,
    LATEST,
    SNAPSHOT,
    ApplicationConfig,
    PublisherConfig,
    SubscriberConfig,
)
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.messages import Mark, Updates
from qanat.protocols.publisher.reading import (
    Locate,
    Located,
    Measure,
    Measured,
    ReadLog,
    ReadTables,
    Settle,
    Settled,
    Unreadable,
    WasLost,
    WasRead,
)
from qanat.protocols.publisher.subscriber import Done, Handed, Reach, Returned, Subscriber
from qanat.protocols.publisher.tables import LAST_INDEX
from qanat.sim import Place, SimNode, World
from qanat.sim.units import MS

PUBLISHERS, COORDINATOR = "publisher", "coordinator"
POLL_US = 10 * MS
SNAPSHOT_ROWS = 100
"""A snapshot begins when so much was written."""
SETTLE_US = 40 * MS
"""How often a datastore that keeps its log is told what is done with."""
PATIENCE_US = 60 * MS
"""How long a read waits for something to come."""


class PublisherStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of all parts, as a scenario's `[config]`. Nodes of a group are instances of the application of
    that name."""

    publisher: PublisherConfig = PublisherConfig()
    applications: dict[str, ApplicationConfig] = {}
    session: SessionConfig = SessionConfig()
    server: ServerConfig = ServerConfig()
    window_bytes: int = 4 << 20
    retry_ms: float = 100.0
    handle_ms: dict[str, tuple[float, float]] = {}
    """How long an application takes for one item, drawn for each."""
    reach: float = 0.0
    """The chance that an application that is done with updates sends a datamarker of its own accord."""
    read_ms: tuple[float, float] = (0.2, 2.0)
    lag_ms: tuple[float, ...] = ()
    """How far each copy of the log is behind, publisher by publisher."""
    slot: bool = False
    """Datastores keep their logs until they are told that they are no longer needed, and then no longer:
    nothing may ever be lost."""


class Begun(msgspec.Struct, frozen=True):
    """An application begins with what it was handed."""

    handed: Handed


class Hosts:
    """The log, its readers, and applications that take their time."""

    def __init__(
        self,
        study: PublisherStudy,
        places: Sequence[Place],
        publisher: type[Publisher] = Publisher,
        subscriber: type[Subscriber] = Subscriber,
    ) -> None:
        self.study, self.log = study, SimLog()
        self.publishers = [place.address for place in places if place.group == PUBLISHERS]
        self.coordinators = [place.address for place in places if place.group == COORDINATOR]
        self._publisher, self._subscriber = publisher, subscriber
        self.applications = dict(study.applications)
        """As publishers that start now are told."""
        self.done = Ledger(self)
        """What applications are done with."""
        self.away_until_us: dict[Address, int] = {}
        """Copies whose datastore is away: publishers cannot read their logs until then."""
        self.marked: set[Position] = set()
        self.unmarked: set[Position] = set()
        """Places up to which something was read, so that it is known what the log has there; and places where
        somebody began without that."""
        self._tables = SimTables(self.log)
        self._located: dict[str, Position] = {}
        self._begun: dict[str, None] = {}
        """Applications that were handed something."""
        self._hooked = False
        self._work: dict[tuple[Address, int], deque[Handed]] = {}
        self._void: dict[tuple[Address, int, str], tuple[int, int]] = {}
        """The session and round of which something was returned."""

    def make(self, context: Context) -> Machine[Any, Any]:
        node, study = cast(SimNode, context), self.study
        if not self._hooked:
            self._hooked = True
            node.world.deliver_hooks.append(self.on_deliver)
        if node.group == COORDINATOR:
            return CoordinatorServer(context, study.server)
        if node.group == PUBLISHERS:
            if study.slot:
                node.world.after(SETTLE_US, self._settle, node, node.life)
            return self.make_publisher(context)
        config = SubscriberConfig(node.group, window_bytes=study.window_bytes, retry_ms=study.retry_ms)
        return self._subscriber(context, config, self.publishers)

    def make_publisher(self, context: Context) -> Publisher:
        study, kind = self.study, self._publisher
        if not self.coordinators:
            return kind(context, study.publisher, self.applications)
        coordinator = self.coordinators[0]
        require(issubclass(kind, CopyPublisher), "with a coordinator there are copies")
        return cast(type[CopyPublisher], kind)(
            context,
            study.publisher,
            self.applications,
            lambda context, listener: Session(context, study.session, coordinator, listener),
            "/publishers/log",
        )

    def lag_us(self, node: SimNode) -> int:
        number = self.publishers.index(node.address)
        return round(self.study.lag_ms[number] * MS) if number < len(self.study.lag_ms) else 0

    @property
    def parts(self) -> int:
        return self.study.publisher.parts

    def begins(self, application: str) -> Position | None:
        """Where an application begins, if it was told."""
        start = self.applications[application].start
        if start == SNAPSHOT and application in self._located:
            return Position(self._located[application].sequence, LAST_INDEX)
        known = start in (EARLIEST, LATEST, SNAPSHOT)
        return self._located.get(application) if known else Position.parse(start)

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, ReadLog):
            low, high = self.study.read_ms
            delay_us = round((low + (high - low) * world.draw()) * MS)
            world.after(delay_us, self._read, node, node.life, item, world.now + PATIENCE_US)
        elif isinstance(item, Locate):
            world.after(MS, self._locate, node, node.life, item)
        elif isinstance(item, Measure):
            world.after(MS, self._measure, node, node.life)
        elif isinstance(item, Settled):
            self.give_up(node, item.upto)
        elif isinstance(item, Handed):
            self._begun[node.group] = None
            self._handle(world, node, item)

    def _read(self, node: SimNode, life: int, asked: ReadLog, until_us: int) -> None:
        if node.life != life or not node.up:
            return
        world, oldest = node.world, self.log.oldest(node.address)
        if self._away(node):
            world.after(POLL_US, self._read, node, life, asked, until_us)
            return
        if asked.tables is not None:
            self._read_tables(node, life, asked, asked.tables)
            return
        if asked.after < oldest:
            self.unmarked.add(oldest)
            node.request(WasLost(asked.caravan, asked.after, oldest, "the log was cut"), life)
            return
        rows = self.log.after(asked.after, asked.rows, world.now - self.lag_us(node))
        if not rows and world.now < until_us:
            world.after(POLL_US, self._read, node, life, asked, until_us)
            return
        upto, batch = (rows[-1].position, batch_of(rows)) if rows else (asked.after, None)
        mark = mark_of(rows[-1]) if rows else b""
        if rows:
            self.marked.add(upto)
        node.request(WasRead(asked.caravan, asked.after, upto, batch, mark=mark), life)

    def _read_tables(self, node: SimNode, life: int, asked: ReadLog, tables: ReadTables) -> None:
        newest = self.log.latest(node.world.now - self.lag_us(node))
        if newest.sequence < tables.snapshot.sequence:
            node.world.after(POLL_US, self._read, node, life, asked, 0)
            return
        upto, rows = self._tables.read((node.address, life), tables, asked.after, asked.rows, newest)
        batch = batch_of([row for _, row in rows], [place for place, _ in rows]) if rows else None
        node.request(WasRead(asked.caravan, asked.after, upto, batch), life)

    def _away(self, node: SimNode) -> bool:
        return node.world.now < self.away_until_us.get(node.address, 0)

    def _measure(self, node: SimNode, life: int) -> None:
        if self._away(node):
            node.request(Unreadable(), life)
            return
        newest = self.log.latest(node.world.now - self.lag_us(node))
        node.request(Measured(self.log.oldest(node.address), newest), life)

    def _settle(self, node: SimNode, life: int) -> None:
        if node.life == life and node.up:
            node.request(Settle(), life)
            node.world.after(SETTLE_US, self._settle, node, life)

    def give_up(self, node: SimNode, upto: Position) -> None:
        """A copy's datastore is told that the log up to there is no longer needed."""
        self.log.cut_to(node.address, min(upto, self.log.latest(node.world.now - self.lag_us(node))))

    def _locate(self, node: SimNode, life: int, asked: Locate) -> None:
        if node.life != life or not node.up:
            return
        early = asked.start == SNAPSHOT and len(self.log.rows) < SNAPSHOT_ROWS
        if self._away(node) or early:
            node.world.after(POLL_US, self._locate, node, life, asked)
            return
        position = self.log.latest(node.world.now - self.lag_us(node))
        if asked.start == EARLIEST:
            position = self.log.oldest(node.address)
        elif asked.start == SNAPSHOT:
            position = self._located.get(asked.application, Position(position.sequence, 0))
        if asked.application not in self._begun:  # real-time applications ask again and again
            before = self._located.get(asked.application, position)
            self._located[asked.application] = max(position, before)
        self.unmarked.add(position)
        node.request(Located(asked.application, asked.start, position), life)

    def _handle(self, world: World, node: SimNode, handed: Handed) -> None:
        """One item after the other."""
        queue = self._work.setdefault((node.address, node.life), deque())
        queue.append(handed)
        if len(queue) == 1:
            self._begin(node, node.life)

    def _begin(self, node: SimNode, life: int) -> None:
        """With the first that may be begun; what may not is returned, and what was handed over after it."""
        queue = self._work[node.address, life]
        while queue and not self._may_begin(node, life, queue[0]):
            node.world.after(0, node.request, Returned(queue.popleft().ticket), life)
        if not queue:
            return
        node.world.delivered(node, Begun(queue[0]))
        item = queue[0].item
        low, high = self.study.handle_ms.get(node.group, (0.1, 1.0))
        takes_us = round((low + (high - low) * node.world.draw()) * MS)
        if isinstance(item, Updates):
            takes_us *= max(1, sum(batch.count for batch in item.batches))
        node.world.after(takes_us, self._end, node, life)

    def _may_begin(self, node: SimNode, life: int, handed: Handed) -> bool:
        place, turn = (node.address, life, handed.publisher), (handed.session, handed.round)
        machine, now_us = cast(Subscriber, node.machine), node.now_us
        if self._void.get(place) != turn and machine.may_begin(handed, now_us):
            return True
        self._void[place] = turn
        return False

    def _end(self, node: SimNode, life: int) -> None:
        if node.life != life or not node.up:
            return
        if node.paused:  # its application stands still as well
            node.world.after(MS, self._end, node, life)
            return
        queue = self._work[node.address, life]
        handed = queue.popleft()
        self.done.take(node, handed)
        if queue:
            self._begin(node, life)
        node.request(Done(handed.ticket), life)
        if self.study.reach and isinstance(handed.item, Updates) and node.world.draw() < self.study.reach:
            node.request(Reach(handed.publisher, self._reached(node, handed, handed.item)), life)

    def _reached(self, node: SimNode, handed: Handed, item: Updates) -> tuple[Mark, ...]:
        mine = self.done.sessions[session_of(node, handed)]
        last: dict[str, Position] = {}
        for position, shard, _ in rows_of(item, self.log):
            last |= dict.fromkeys(item.only or tuple(mine) if shard is None else (shard,), position)
        self.unmarked.update(last.values())
        return tuple(Mark(position, (shard,)) for shard, position in last.items())


def hosts_of(world: World) -> Hosts:
    """Those of a world, found by their hook: a table of worlds would keep each of them alive."""
    owners = (getattr(hook, "__self__", None) for hook in world.deliver_hooks)
    return next(owner for owner in owners if isinstance(owner, Hosts))


def builder(
    publisher: type[Publisher] | None = None, subscriber: type[Subscriber] = Subscriber
) -> Callable[[PublisherStudy, Sequence[Place]], Factory]:
    """How a scenario's nodes are made; tests put broken ones in."""

    def build(study: PublisherStudy, places: Sequence[Place]) -> Factory:
        copies = any(place.group == COORDINATOR for place in places)
        return Hosts(study, places, publisher or (CopyPublisher if copies else Publisher), subscriber).make

    return build


def publisher_of(node: SimNode) -> Publisher:
    return cast(Publisher, node.machine)


def publishers(world: World) -> list[SimNode]:
    return [node for node in world.node_list if node.group == PUBLISHERS]
