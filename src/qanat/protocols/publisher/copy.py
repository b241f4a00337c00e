"""A publisher of one of several copies of a dataset: datamarkers and ownership lie in the coordinator, so
that another copy's publisher can go on where this one stopped (Wormhole, section 3.3.2)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qanat.events.position import Position
from qanat.kernel import Address, Context, Parts
from qanat.protocols.caravans.policy import Policy
from qanat.protocols.publisher.balance import Balance
from qanat.protocols.publisher.config import EARLIEST, LATEST, SNAPSHOT, ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.flows import Caravan, Flow, Served
from qanat.protocols.publisher.holder import Part
from qanat.protocols.publisher.loads import Loads
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.ownership import Owners
from qanat.protocols.publisher.reading import (
    Configure,
    Measure,
    Measured,
    Move,
    PublisherRequest,
    Unreadable,
)
from qanat.protocols.publisher.records import Ended, Here, Kept, KeptFlow, Left, Moved, Record, apply
from qanat.protocols.registry import CoordinatorSession

TICK, ANNOUNCE, WARY = "owners/tick", "owners/announce", "owners/wary/"
TICK_US = 200_000
"""How often a lost call is made again: a few round trips."""
RELEASE = "\0"
"""As a subscriber to whom flows go: none, another copy will serve them."""


class CopyPublisher(Publisher):
    """`connect(context, listener)` makes the session; `folder` is the dataset's place in the coordinator."""

    def __init__(
        self,
        context: Context,
        config: PublisherConfig,
        applications: Mapping[str, ApplicationConfig],
        connect: Callable[[Context, "CopyPublisher"], CoordinatorSession],
        folder: str,
        *,
        sharding: str = "",
        balance: Balance | None = None,
        policies: Mapping[str, Callable[[int], Policy]] | None = None,
        companies: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(
            context, config, applications, balance=balance, policies=policies, companies=companies
        )
        self.parts = Parts(self, context)
        self.session = self.parts.add("session", lambda context: connect(context, self))
        self.owners = Owners(
            folder, context.address, self, self._return_ticks(config), self._division(sharding)
        )
        self.owners.lasts(config.outlasts_us)
        self.loads = Loads(context.address)
        self._begins: dict[str, tuple[Position, int]] = {}
        self._releasing: dict[Part, None] = {}
        self._wary: dict[Part, Kept] = {}
        """Parts whose owner before may have subscribers that still work on what it sent."""
        self.takeovers = self.returns = 0

    def _division(self, sharding: str) -> str:
        return f"shards by {sharding!r} in {self.config.parts} parts" if sharding else ""

    @staticmethod
    def _return_ticks(config: PublisherConfig) -> int:
        return max(1, round(config.return_ms * 1000) // TICK_US)

    def _may_serve(self, now_us: int) -> bool:
        return self.session.leased(now_us)

    @property
    def waits_for(self) -> list[Part]:
        """Parts that it owns, and whose owner before may have subscribers that are still at work."""
        return list(self._wary)

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        super().on_start(now_us, saved)
        self.owners.configure(self.applications, self.config.parts)
        self.session.start()
        self.context.set_timer(TICK, TICK_US)
        self._announce()

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        if not self.parts.on_message(now_us, sender, message):
            super().on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        if name == TICK:
            self.owners.tick(self.session, later=True)
            self.context.set_timer(TICK, TICK_US)
        elif name == ANNOUNCE:
            self._announce()
        elif name.startswith(WARY):
            application, _, number = name[len(WARY) :].rpartition("/")
            part = application, int(number)
            kept = self._wary.pop(part, None)
            if kept is not None and part in self.owners.owned:
                self._take_up(part, kept)
        elif not self.parts.on_timer(now_us, name):
            super().on_timer(now_us, name)

    def on_request(self, now_us: int, request: PublisherRequest) -> None:
        if isinstance(request, Measured | Unreadable):
            found = (request.oldest, request.newest) if isinstance(request, Measured) else None
            self.owners.copies.measured(found)
            self.owners.tick(self.session)
            return
        super().on_request(now_us, request)
        if isinstance(request, Configure):
            self.owners.lasts(self.config.outlasts_us)
            self.owners.copies.return_ticks = self._return_ticks(self.config)
            self.owners.configure(self.applications, self.config.parts)
            self.owners.tick(self.session)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.parts.on_link_down(now_us, peer)
        super().on_link_down(now_us, peer)

    def _announce(self) -> None:
        self.context.deliver(Measure())
        self._share_loads()
        self.context.set_timer(ANNOUNCE, round(self.config.announce_ms * 1000))

    def _share_loads(self) -> None:
        """With all publishers of the coordinator, if the balance wants to know."""
        if getattr(self.balance, "shares_loads", False):
            mine = {
                name: {str(link.address): len(link.flows) for link in served.links.values()}
                for name, served in self.served.items()
            }
            self.loads.tick(self.session, mine)
            for name, served in self.served.items():
                served.elsewhere = self.loads.elsewhere(name)

    # What the session tells

    def on_opened(self, session: int) -> None:
        self.loads.on_opened(session)
        self.owners.on_opened(self.session, session)

    def on_expired(self) -> None:
        """Others take over what it had; its subscribers shall not wait for it."""
        for link in list(self.links.values()):
            self._lose(link)
        self.owners.on_expired()
        self.loads.on_expired()

    def on_event(self, kind: str, path: str) -> None:
        self.owners.on_event(self.session, path)

    def on_lease(self) -> None:
        self._plan_soon()

    def _quit(self) -> None:
        super()._quit()
        self.session.close()
        self.owners.on_expired()

    # What owners ask and tell

    def waits(self, part: Part) -> bool:
        return part in self._wary

    def acquired(self, part: Part, kept: Kept, *, clean: bool, outlasts_us: int) -> None:
        self.context.trace("acquired", application=part[0], part=part[1], clean=clean)
        if clean:
            self._take_up(part, kept)
        else:
            self.takeovers += 1
            self._wary[part] = kept
            self.context.set_timer(f"{WARY}{part[0]}/{part[1]}", outlasts_us)

    def _take_up(self, part: Part, kept: Kept) -> None:
        served = self.served.get(part[0])
        if served is not None:
            Publisher._begin_part(self, served, part[1], kept)
            self._plan_soon()

    def lost(self, part: Part) -> None:
        self.context.trace("lost", application=part[0], part=part[1])
        self._releasing.pop(part, None)
        self._wary.pop(part, None)
        served = self.served.get(part[0])
        if served is None:
            return
        for link in list(served.links.values()):
            if any(flow.part == part[1] for flow in link.flows.values()):
                self._lose(link)  # it was not given away: nobody here may work on it any more
        for flow in [flow for flow in served.flows.values() if flow.part == part[1]]:
            served.remove(flow)
        served.snapshots.pop(part[1], None)
        self.troubled(part, "")
        scout = served.scouts.pop(part[1], None)
        if scout is not None and scout.caravan is not None:
            scout.caravan.leave(scout)

    def begins(self, part: Part) -> Kept | None:
        served = self.served.get(part[0])
        if served is None:
            return None
        start = served.config.start
        if start not in (EARLIEST, LATEST, SNAPSHOT):
            return Kept({part[1]: Position.parse(start)})
        if part[0] not in self._begins:
            self._ask_where(part[0], start)
            return None
        position, snapshot = self._begins[part[0]]
        return Kept({part[1]: position}, snapshots={part[1]: snapshot} if snapshot >= 0 else {})

    def state(self, part: Part) -> Kept:
        """What another copy needs to go on."""
        application, number = part
        if part in self._wary:
            return self._wary[part]
        served = self.served[application]
        kept = Kept()
        scout = served.scouts[number]
        kept.floors[number] = scout.position
        if scout.seen is not None:
            kept.seen[number] = scout.seen
        if scout.lost is not None:
            kept.lost[number] = scout.lost
        if number in served.snapshots:
            kept.snapshots[number] = served.snapshots[number].sequence
        for flow in served.flows.values():
            if flow.part == number:
                kept.flows[flow.shard] = KeptFlow(number, flow.marked, flow.untold, flow.marked_seen)
        return kept

    def needs(self, part: Part) -> tuple[Position, Position]:
        if part in self._wary:
            kept = self._wary[part]
            marks = [*kept.floors.values(), *(flow.position for flow in kept.flows.values())]
        else:
            served = self.served[part[0]]
            marks = [flow.marked for flow in served.flows.values() if flow.part == part[1]]
            marks.append(served.scouts[part[1]].position)
        return min(marks), max(marks)

    def released(self, part: Part) -> bool:
        if part in self._wary:
            return False
        served = self.served[part[0]]
        flows = [flow for flow in served.flows.values() if flow.part == part[1]]
        if part not in self._releasing:
            self._releasing[part] = None
            self.returns += 1
        scout = served.scouts[part[1]]
        if scout.caravan is not None:
            scout.caravan.leave(scout)
        for link in served.links.values():
            self._withdraw(link, [flow for flow in flows if flow.link is link], RELEASE)
        return all(flow.link is None for flow in flows)

    def keeps(self, part: Part) -> None:
        if part in self._releasing:
            del self._releasing[part]
            self._assign_soon()
            self._plan_soon()

    def troubled(self, part: Part, why: str) -> None:
        served = self.served.get(part[0])
        if served is None:
            return
        before = served.troubles.pop(part[1], "")
        if why:
            served.troubles[part[1]] = why
        if before and served.problem == before:
            served.problem = why
            self._plan_soon()

    # How a publisher of several copies differs from one that is alone

    def _lease(self, served: Served) -> tuple[int, int]:
        """No longer than whoever takes over would wait."""
        wanted, recorded_us = super()._lease(served), self.owners.recorded_us(served.name)
        if wanted[1] <= recorded_us:
            return wanted
        return self.config.lease_within_us(recorded_us), recorded_us

    def _begin_part(self, served: Served, part: int, kept: Kept) -> None:
        """When it is owned."""

    def _begin(self, served: Served, position: Position, snapshot: int = -1) -> None:
        self._begins[served.name] = position, snapshot
        self.owners.tick(self.session)

    def _keep(self, record: Record) -> None:
        if isinstance(record, Here | Left):
            return  # whoever takes over waits for all leases
        if isinstance(record, Ended):
            self._begins.pop(record.application, None)
            self.owners.remove(self.session, record.application)
            return
        for part in self.owners.owned:
            if part[0] == record.application:
                self.owners.changed(part)

    def _settled(self) -> Position | None:
        """By what the coordinator has of all parts, whoever owns them: this copy may have to go on there."""
        return self.owners.settled()

    def _move(self, request: Move) -> None:
        """Also what is not served yet, since leases of the owner before are not over."""
        super()._move(request)
        for part, kept in list(self._wary.items()):
            if part[0] == request.application:
                moved = Kept(
                    dict(kept.floors),
                    dict(kept.lost),
                    dict(kept.flows),
                    dict(kept.snapshots),
                    dict(kept.seen),
                )
                apply(moved, Moved(request.application, request.position, request.shards))
                self._wary[part] = moved
                self.owners.changed(part)

    def _stays(self, served: Served, part: int) -> bool:
        return (served.name, part) in self._releasing

    def _came_to_loss(self, caravan: Caravan, upto: Position) -> None:
        """Where another copy still has it, that one shall serve the part: nothing is lost that any copy
        has."""
        self.owners.copies.lost(self.session, upto)
        parts = {(one.served.name, one.part): None for one in caravan.travellers}
        for part in parts:
            best = self.owners.best(part) if part in self.owners.owned else self.owners.me
            if best not in (self.owners.me, ""):  # it may be that it is not known now
                for one in [one for one in caravan.travellers if (one.served.name, one.part) == part]:
                    caravan.leave(one)
                self._releasing.setdefault(part)
        self.owners.tick(self.session)

    def _freed(self, flows: Sequence[Flow], to: str) -> None:
        super()._freed(flows, to)  # for it may be that the part stays here after all
        if to == RELEASE:
            self.owners.tick(self.session)
