"""A publisher: reads the log with as few readers as it can, and sends each application its flows (Wormhole,
section 3)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import assert_never

from qanat.events.position import Position
from qanat.kernel import Context, require
from qanat.protocols.caravans.pace import Meter
from qanat.protocols.caravans.policy import Policy
from qanat.protocols.publisher.balance import Balance, make_balance
from qanat.protocols.publisher.config import EARLIEST, LATEST, SNAPSHOT, ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.disputes import DISPUTES, Disputes
from qanat.protocols.publisher.flows import Caravan, Flow, Scout, Served, Traveller
from qanat.protocols.publisher.link import Link
from qanat.protocols.publisher.operated import Operated
from qanat.protocols.publisher.policy import make_policy
from qanat.protocols.publisher.reading import (
    Configure,
    Give,
    Locate,
    Located,
    Measured,
    Move,
    PublisherRequest,
    Quit,
    ReadLog,
    Settle,
    Settled,
    Unreadable,
    WasLost,
    WasOther,
    WasRead,
)
from qanat.protocols.publisher.records import (
    Began,
    Ended,
    Here,
    Kept,
    Record,
    encode,
    replay,
)
from qanat.protocols.publisher.routing import first_after
from qanat.protocols.publisher.snapshots import Snapshots, TableCaravan, TablePace
from qanat.protocols.publisher.subscribers import MARK, MARK_LOOKS, REBALANCE
from qanat.protocols.publisher.tables import Snapshot

PLAN, SOON, READ = "plan", "plan/soon", "read/"
SOON_US = 2_000
"""What happens together is planned together."""
UNREAD_BYTES = 64
"""What a read counts that brought nothing."""


class Publisher(Operated):
    """`applications` and `config` may be changed later by `Configure`."""

    def __init__(
        self,
        context: Context,
        config: PublisherConfig,
        applications: Mapping[str, ApplicationConfig],
        *,
        balance: Balance | None = None,
        policies: Mapping[str, Callable[[int], Policy]] | None = None,
        companies: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(context, config, balance=balance, policies=policies, companies=companies)
        self.applications = dict(applications)
        self.policy = make_policy(config, self._policies)
        self.meter = Meter(config)
        self.snapshots, self.table_meter = Snapshots(context), TablePace(config)
        self.disputes = Disputes(context)
        self._epochs = 0
        self.reads = self.read_updates = self.read_bytes = self.losses = 0
        self._numbers = 0
        self._planning = False
        self._located: dict[str, Position] = {}
        """Where the log ended when it was asked for real-time applications."""
        self._locating: dict[str, str] = {}
        self._ended: dict[str, dict[str, int]] = {}
        """Applications that were taken away, and who may still be at work for them."""

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        kept = replay(saved)
        for name in kept:
            if name not in self.applications:
                self._keep(Ended(name))
        for name, config in self.applications.items():
            self._serve(name, config, kept.get(name, Kept()))
        self.context.set_timer(PLAN, round(self.config.plan_ms * 1000))
        self.context.set_timer(MARK, round(self.config.marker_ms * 1000) // MARK_LOOKS)
        self.context.set_timer(REBALANCE, round(self.config.rebalance_ms * 1000))

    def on_timer(self, now_us: int, name: str) -> None:
        if name == PLAN:
            self._plan(now_us)
            self.context.set_timer(PLAN, round(self.config.plan_ms * 1000))
        elif name == SOON:
            self._planning = False
            self._plan(now_us)
        elif name.startswith(READ):
            caravan = self._caravan(int(name[len(READ) :]))
            if caravan is not None:
                self._read_on(now_us, caravan)
        elif name == DISPUTES:
            self.disputes.look_again(self.served.values())
            self._plan_soon()
        else:
            require(self._on_timer(now_us, name), f"no timer is called {name!r}")

    def on_request(self, now_us: int, request: PublisherRequest) -> None:
        self.counts[type(request).__name__] += 1
        match request:
            case WasRead() | WasLost() | WasOther():
                caravan = self._caravan(request.caravan)
                if caravan is not None and caravan.reading == request.after:
                    caravan.reading = None
                    if isinstance(request, WasOther):
                        self.disputes.stand_still(caravan, request)
                        self._plan_soon()
                    elif isinstance(request, WasRead) and not self._has_columns(request):
                        self._read_on(now_us, caravan)
                    elif self._may_serve(now_us):  # else it is read again when it may
                        self._come_by(now_us, caravan, request)
            case Located():
                if self._locating.get(request.application) == request.start:
                    del self._locating[request.application]
                    self._on_located(request)
            case Measured() | Unreadable():
                pass  # of interest to copies
            case Settle():
                upto = self._settled()
                if upto is not None:
                    self.context.deliver(Settled(upto))
            case Configure():
                self._configure(request)
            case Move():
                self._move(request)
            case Give():
                self._give_to(request)
            case Quit():
                self._quit()
            case _:
                assert_never(request)

    # Applications

    def _serve(self, name: str, config: ApplicationConfig, kept: Kept) -> Served:
        self._numbers += 1
        served = self.served[name] = Served(name, config, self._numbers)
        self._keep_together(served)
        self.filters.set(served.number, served.filter)
        for part in range(self.config.parts):
            self._begin_part(served, part, kept)
        self._await(served, kept.holders)
        return served

    def _begin_part(self, served: Served, part: int, kept: Kept) -> None:
        """From what is on record of it; without a record, from where the application wants to begin."""
        floor = kept.floors.get(part)
        if floor is None:
            self._locate(served)
            return
        self._begin_snapshot(served, part, kept.snapshots.get(part, -1))
        served.scouts[part] = Scout(served, part, floor, kept.lost.get(part), kept.seen.get(part))
        for shard, flow in kept.flows.items():
            if flow.part == part:
                code = self.router.code(shard)
                served.add(Flow(served, part, flow.position, shard, code, flow.lost, flow.seen))
        self._assign_soon()

    def _begin_snapshot(self, served: Served, part: int, sequence: int) -> None:
        """Rows are numbered anew by whoever reads them."""
        if sequence >= 0:
            self._epochs += 1
            served.snapshots[part] = Snapshot(sequence, self._epochs)

    def _locate(self, served: Served) -> None:
        start = served.config.start
        if start in (EARLIEST, LATEST, SNAPSHOT):
            self._ask_where(served.name, start)
        else:
            self._begin(served, Position.parse(start))

    def _ask_where(self, application: str, start: str) -> None:
        if self._locating.get(application) != start:
            self._locating[application] = start
            self.context.deliver(Locate(application, start))

    def _on_located(self, located: Located) -> None:
        served = self.served.get(located.application)
        if served is None:
            return
        if located.start == LATEST and served.config.mode == "real-time":
            self._located[served.name] = located.position
        self._begin(served, located.position, located.position.sequence if located.start == SNAPSHOT else -1)
        self._plan_soon()

    def _begin(self, served: Served, position: Position, snapshot: int = -1) -> None:
        for part in range(self.config.parts):
            if part not in served.scouts:
                self._begin_snapshot(served, part, snapshot)
                served.scouts[part] = Scout(served, part, position)
                self._keep(Began(served.name, part, position, snapshot))
        self._plan_soon()

    def _configure(self, request: Configure) -> None:
        require(request.publisher.parts == self.config.parts, "the number of parts stays as it was")
        self.policy = make_policy(request.publisher, self._policies)
        if request.publisher.balance != self.config.balance and not self._own_balance:
            self.balance = make_balance(request.publisher)
        if request.publisher.rebalance_ms != self.config.rebalance_ms:
            self.context.set_timer(REBALANCE, round(request.publisher.rebalance_ms * 1000))
        self.config = self.meter.config = self.table_meter.config = request.publisher
        self.applications, self.companies = dict(request.applications), dict(request.companies)
        for name in [name for name in self.served if name not in request.applications]:
            self._end(self.served[name])
        for name, config in request.applications.items():
            served = self.served.get(name)
            if served is None:
                self._serve(name, config, Kept(holders=self._ended.pop(name, {})))
            else:
                served.config, served.filter, served.problem = config, config.filter, ""
                self.filters.set(served.number, served.filter)
                self._keep_together(served)
        self._plan_soon()

    def _end(self, served: Served) -> None:
        for link in list(served.links.values()):
            self._lose(link, idle=False)  # it may be in the midst of something, or not hear that it is over
        for traveller in served.travellers:
            if traveller.caravan is not None:
                traveller.caravan.leave(traveller)
        self.filters.set(served.number, None)
        self._locating.pop(served.name, None)
        del self.served[served.name]
        self._keep(Ended(served.name))
        self._ended[served.name] = served.holders
        for name, outlasts_us in served.holders.items():
            self._keep(Here(served.name, name, outlasts_us))

    def _quit(self) -> None:
        for link in list(self.links.values()):
            self._lose(link, idle=False)  # it is told so, and may not hear it

    def _settled(self) -> Position | None:
        """The first of all datamarkers. Their records went out before: whoever is told this is told when they
        are on disk."""
        if not all(len(served.scouts) == self.config.parts for served in self.served.values()):
            return None
        marks = (one.marked for served in self.served.values() for one in served.travellers)
        return min(marks, default=None)

    def _keep(self, record: Record) -> None:
        self.counts[f"record/{type(record).__name__}"] += 1
        self.context.persist(encode(record))

    # Caravans

    def _plan_soon(self) -> None:
        if not self._planning:
            self._planning = True
            self.context.set_timer(SOON, SOON_US)

    def _plan(self, now_us: int) -> None:
        self.caravans.now_us = now_us
        waiting: list[Traveller] = []
        tables: list[Traveller] = []
        for one in self._waiting():
            (tables if one.reads_tables else waiting).append(one)
        self.snapshots.arrange(tables)
        if waiting or len(self.caravans.all) > 1:
            self.caravans.arrange(waiting, self.policy, self.config.caravans_max)
        for caravan in [one for one in self.caravans.all.values() if one.empty]:
            self.caravans.close(caravan)
        self.meter.allot(self.caravans, now_us)
        self.table_meter.share(self.snapshots.all)
        for caravan in self._all_caravans:
            self._read_on(now_us, caravan)

    @property
    def _all_caravans(self) -> list[Caravan]:
        return [*self.caravans.all.values(), *self.snapshots.all.values()]

    def _caravan(self, number: int) -> Caravan | None:
        return self.caravans.all.get(number) or self.snapshots.all.get(number)

    def _waiting(self) -> Iterator[Traveller]:
        """Who would travel, and is in no caravan."""
        for served in self.served.values():
            some: list[Traveller] = [
                flow
                for link in served.links.values()
                if link.takes
                for flow in link.waiting.values()
                if not flow.leaving and not flow.disputed and not self._stays(served, flow.part)
            ]
            some += [
                scout
                for part, scout in served.scouts.items()
                if scout.caravan is None
                and scout.active
                and not scout.disputed
                and not self._stays(served, part)
            ]
            if some and served.config.mode == "real-time":
                if served.name not in self._located:
                    self._ask_where(served.name, LATEST)
                    continue
                some = self._skip(served, some, self._located.pop(served.name))
            yield from some

    def _skip(self, served: Served, some: list[Traveller], to: Position) -> list[Traveller]:
        """What a real-time application missed; those who travel on from there."""
        for scout in served.scouts.values():
            if scout.caravan is not None and scout.position < to:
                scout.caravan.leave(scout)
                some.append(scout)
        behind = [traveller for traveller in some if traveller.sent < to]
        self._tell_loss(behind, to, "a real-time application gets what is new")
        for traveller in behind:
            traveller.sent, traveller.sent_seen = to, None
        return some

    def _read_on(self, now_us: int, caravan: Caravan) -> None:
        if caravan.reading is not None or not self._may_serve(now_us) or not self.caravans.ready(caravan):
            return
        tables = caravan if isinstance(caravan, TableCaravan) else None
        delay_us = (self.table_meter if tables else self.meter).delay_us(caravan, now_us)
        if delay_us is None:
            return
        if delay_us > 0:
            self.context.set_timer(f"{READ}{caravan.number}", delay_us)
            self.counts["reads_delayed"] += 1
            return
        caravan.reading = caravan.at
        columns = self._wanted_columns()
        asked = tables.ask() if tables else None
        seen = () if tables else caravan.witnesses()
        self.context.deliver(ReadLog(caravan.number, caravan.at, self.config.read_rows, columns, asked, seen))

    def _wanted_columns(self) -> tuple[str, ...] | None:
        return None if any(served.config.columns for served in self.served.values()) else self.filters.columns

    def _has_columns(self, found: WasRead) -> bool:
        """Filters may have changed since it was asked for, and look at what it does not have."""
        if found.columns is None or found.batch is None:
            return True
        wanted = self._wanted_columns()
        return wanted is not None and set(wanted) <= set(found.columns)

    def _go_on(self, now_us: int, link: Link) -> None:
        for caravan in self._all_caravans:
            if link.address in caravan.riders:
                self._read_on(now_us, caravan)
        if link.waiting:
            self._plan_soon()

    def _came_to_loss(self, caravan: Caravan, upto: Position) -> None:
        """Before anybody is told."""

    def _come_by(self, now_us: int, caravan: Caravan, found: WasRead | WasLost) -> None:
        """A caravan moves on. Where it comes to another, they are one from there."""
        self.caravans.now_us = now_us
        tables = caravan if isinstance(caravan, TableCaravan) else None
        upto, front = found.upto, None if tables else self.caravans.ahead_of(caravan)
        joins = front is not None and upto >= front.at
        if front is not None and joins:
            upto = front.at
        if upto > caravan.at:
            if isinstance(found, WasLost):
                if tables is None and found.cut:
                    self._came_to_loss(caravan, found.upto)
                self._tell_loss(list(caravan.travellers), upto, found.reason)
                self.losses += 1
            elif found.batch is not None and found.batch.count:
                stop = first_after(found.batch, upto) if joins else found.batch.count
                self._route(now_us, caravan, found.batch.slice(0, stop), upto)
            if front is not None and upto < found.upto:
                caravan.join(front)
            else:
                caravan.move_to(found)
        size = UNREAD_BYTES
        caravan.current = isinstance(found, WasRead) and found.batch is None
        caravan.live = caravan.live or caravan.current
        self.counts["reads_empty"] += caravan.current
        if isinstance(found, WasRead) and found.batch is not None and found.batch.count:
            size += found.batch.virtual_size
            self.read_updates += found.batch.count
            caravan.read_updates += found.batch.count
            caravan.time_us = int(found.batch.times()[-1])
        self.reads += 1
        caravan.reads += 1
        self.read_bytes += size
        caravan.read_bytes += size
        (self.table_meter if tables else self.meter).took(caravan, size, now_us)
        if tables is not None and tables.done:
            self.snapshots.finish(tables)
            self._plan_soon()
        elif front is not None and joins:
            self.caravans.merge(caravan, front)
            self._read_on(now_us, front)
        else:
            self._read_on(now_us, caravan)
