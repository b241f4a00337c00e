"""What a read has for whom: updates to the subscribers of their shards, flows for shards that nobody knew,
and what was lost."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qanat.events.batch import Batch
from qanat.events.position import Position
from qanat.kernel import Context
from qanat.protocols.caravans.policy import Policy
from qanat.protocols.publisher.balance import Balance
from qanat.protocols.publisher.config import PublisherConfig
from qanat.protocols.publisher.flows import Caravan, Flow, Riders, Scout, Traveller
from qanat.protocols.publisher.link import Link
from qanat.protocols.publisher.records import NOBODY, Missed, Noticed, Range, joined
from qanat.protocols.publisher.routing import (
    EVERY,
    UNSEEN,
    UNSHARDED,
    Codes,
    Filters,
    Router,
    Table,
    base_shard,
    first_after,
    grown,
    position_at,
)
from qanat.protocols.publisher.subscribers import FLUSH, Subscribers


class Delivering(Subscribers):
    """What is above it says which caravan read what."""

    def __init__(
        self,
        context: Context,
        config: PublisherConfig,
        *,
        balance: Balance | None = None,
        policies: Mapping[str, Callable[[int], Policy]] | None = None,
    ) -> None:
        super().__init__(context, config, balance=balance, policies=policies)
        self.router = Router(config.parts)
        self.filters = Filters()

    def _route(self, now_us: int, caravan: Caravan, batch: Batch, upto: Position) -> None:
        codes = self.router.codes(batch, {scout.part for scout in caravan.scouts})
        self._discover(caravan, batch, codes)
        numbers = {riders.link.served.number for riders in caravan.riders.values()}
        passed = self.filters.passed(batch, sorted(numbers))
        shared: dict[bytes, Batch] = {}
        for riders in caravan.riders.values():
            served = riders.link.served
            mine = self._of(riders, caravan, batch, codes)
            every = codes == EVERY
            mine &= codes >= 0
            if served.number in passed:
                served.counts["filtered"] += int(np.count_nonzero(mine & ~passed[served.number]))
                mine &= passed[served.number]
                every &= passed[served.number]
            if served.config.stale_ms:
                self._leave_out_old(riders, caravan, batch, mine)
            if every.any() and riders.is_all and riders.until <= caravan.at:
                mine |= every
                every[:] = False
            if every.any():
                self._send_wide(riders, caravan, batch, mine, every, upto)
            elif mine.any():
                self._send(riders.link, _taken(batch, mine, shared), upto)

    def _of(self, riders: Riders, caravan: Caravan, batch: Batch, codes: Codes) -> Table:
        """Rows of its shards that its flows have not had."""
        riders.codes = grown(riders.codes, len(self.router.names))
        mine: Table = riders.codes[codes]
        if riders.until > caravan.at:
            starts = np.zeros(len(self.router.names) - UNSEEN, np.int64)
            for flow in riders.flows.values():
                if flow.sent > caravan.at:
                    starts[flow.code] = first_after(batch, flow.sent)
            mine &= np.arange(batch.count) >= starts[codes]
        return mine

    def _send(self, link: Link, batch: Batch, upto: Position) -> None:
        tolerates_ms = link.served.config.tolerates_ms
        if tolerates_ms and not link.held_bytes:
            self.context.set_timer(f"{FLUSH}{link.address}", round(tolerates_ms * 1000))
        link.updates(batch, upto, hold=self.config.held_bytes if tolerates_ms else 0)

    def _send_wide(
        self, riders: Riders, caravan: Caravan, batch: Batch, mine: Table, every: Table, upto: Position
    ) -> None:
        """Updates that concern every shard, in their places, each with the shards for which it is new."""
        start = 0
        for row in np.flatnonzero(every).tolist():
            part = np.zeros(len(mine), bool)
            part[start:row] = mine[start:row]
            here = position_at(batch, row)
            if part.any():
                self._send(riders.link, batch.take(part), position_at(batch, row - 1))
            only = [flow.shard for flow in riders.flows.values() if flow.position < here]
            if only:
                riders.link.updates_only(batch.take(np.array([row])), here, only)
            start = row + 1
        rest = mine.copy()
        rest[:start] = False
        if rest.any():
            self._send(riders.link, batch.take(rest), upto)

    def _leave_out_old(self, riders: Riders, caravan: Caravan, batch: Batch, mine: Table) -> None:
        """For an application that wants nothing older than so long."""
        stale_ms = riders.link.served.config.stale_ms
        old = np.flatnonzero(mine & (batch.times() < self.context.wall_us() - round(stale_ms * 1000)))
        if len(old):
            mine[old] = False
            riders.link.served.counts["stale"] += len(old)
            first, last = int(old[0]), position_at(batch, int(old[-1]))
            after = position_at(batch, first - 1) if first else caravan.at
            reason = f"it is older than {stale_ms:g} ms, which the application does not want"
            riders.link.loss([flow.shard for flow in riders.flows.values()], after, last, reason)

    # Shards that nobody knew

    def _discover(self, caravan: Caravan, batch: Batch, codes: Codes) -> None:
        unsharded = self.router.code(UNSHARDED)
        for scout in list(caravan.scouts):
            start = first_after(batch, scout.sent) if scout.sent > caravan.at else 0
            here = np.unique(codes[start:])
            served = scout.served
            served.known = grown(served.known, len(self.router.names))
            fresh = [int(code) for code in here if code >= 0 and not served.known[code]]
            if EVERY in here and not served.known[unsharded] and unsharded not in fresh:
                fresh.append(unsharded)
            fresh = [code for code in fresh if self.router.part[code] == scout.part]
            if fresh:
                self._found(scout, [self.router.names[code] for code in fresh])
            if scout.lost is not None and scout in caravan.scouts and EVERY in here:
                wide = np.flatnonzero(codes[start:] == EVERY)[-1]
                self._unheard(scout, scout.lost[0], position_at(batch, start + int(wide)))

    def _found(self, scout: Scout, shards: Sequence[str]) -> None:
        """Flows of shards that begin here; on record before any marker goes beyond."""
        served = scout.served
        problem = served.troubles.get(scout.part, "")
        if len(served.flows) + len(shards) > self.config.shards_max:
            problem = f"it has more than {self.config.shards_max} shards (shards_max): its new ones wait"
        if problem:
            served.problem = problem
            if scout.caravan is not None:
                scout.caravan.leave(scout)
            return
        after = scout.position
        served.counts["found"] += len(shards)
        self._keep(Noticed(served.name, scout.part, tuple(shards), after, scout.lost, scout.seen))
        flows = [
            Flow(served, scout.part, after, shard, self.router.code(shard), scout.lost, scout.seen)
            for shard in shards
        ]
        for flow in flows:
            served.add(flow)
        links = [link for link in served.links.values() if link.wants]
        if (
            links and not served.awaited
        ):  # of an application that was here before under its name, they may be at work on these
            self._give(flows, links)
        for flow in flows:
            if flow.active and scout.caravan is not None and scout.caravan.fits(flow):
                scout.caravan.take(flow)

    # What was lost

    def _tell_loss(self, some: Sequence[Traveller], upto: Position, reason: str) -> None:
        """Each flow from where it is."""
        places: dict[tuple[Link, Position], list[str]] = {}
        for flow in some:
            if isinstance(flow, Flow) and flow.link is not None and flow.position < upto:
                places.setdefault((flow.link, flow.position), []).append(flow.shard)
        for (link, after), shards in places.items():
            link.loss(shards, after, upto, reason)
        for scout in some:
            if isinstance(scout, Scout) and scout.position < upto:
                self._missed(scout, (scout.position, upto))

    def _missed(self, scout: Scout, lost: Range) -> None:
        """What was lost of shards that nobody knew is told by the flow that stands for the part, and by each
        that is found later."""
        scout.lost = joined(scout.lost, lost)
        served, shard = scout.served, base_shard(scout.part, self.config.parts)
        base = served.flows.get(shard)
        if base is None:
            self._keep(Missed(served.name, scout.part, shard, lost))
            self._found(scout, [shard])
            return
        base.untold = joined(base.untold, lost)
        self._keep(Missed(served.name, scout.part, shard, lost))
        if base.link is not None and base.link.open:
            base.link.forget_tokens()  # those under way came before it was told
            base.link.untold([base])

    def _unheard(self, scout: Scout, after: Position, wide: Position) -> None:
        """A shard whose first updates were lost is not known, and does not get what concerns every shard:
        that is lost to it too. Another copy may have known it, and not have lived to say so."""
        scout.lost = joined(scout.lost, (after, wide))
        self._keep(Missed(scout.served.name, scout.part, NOBODY, scout.lost))


def _taken(batch: Batch, mask: Table, shared: dict[bytes, Batch]) -> Batch:
    """Those rows; the same for all who want the same."""
    if mask.all():
        return batch
    key = mask.tobytes()
    if key not in shared:
        shared[key] = batch.take(mask)
    return shared[key]
