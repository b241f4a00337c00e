"""What publishers promise, looked at from outside."""

from typing import Any

from qanat.checks.publisher_hosts import (
    COORDINATOR,
    PUBLISHERS,
    Begun,
    PublisherStudy,
    hosts_of,
    publisher_of,
    publishers,
)
from qanat.checks.publisher_ledger import Ledger, Session, rows_of, session_of
from qanat.checks.publisher_log import SimLog, mark_of
from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.flows import Flow
from qanat.protocols.publisher.link import ITEM_BYTES
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.messages import Loss, Notice, Updates
from qanat.protocols.publisher.reading import ReadLog
from qanat.protocols.publisher.subscriber import Handed, Subscriber
from qanat.sim import Checker, SimNode, World

CHUNK_BYTES = 3 * 1024
"""More than one read of a scenario holds."""


class InOrder(Checker):
    """Each shard of an application comes to one subscriber at a time, in order, without a gap; and again only
    after a notice."""

    name = "order"

    def __init__(self, study: PublisherStudy) -> None:
        self._ledger: Ledger | None = None
        self._owner: dict[tuple[str, str], Session] = {}
        self._past: dict[tuple[str, str], set[Session]] = {}
        self._last: dict[tuple[Session, str], Position] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if not isinstance(item, Begun):
            return
        item = item.handed
        if self._ledger is None:
            self._ledger = Ledger(hosts_of(world))
        session = session_of(node, item)
        if isinstance(item.item, Notice):
            for shard in item.item.shards:
                self._begin(node.group, shard, session)
        if isinstance(item.item, Updates):
            self._compare(world, self._ledger, node.group, session, item.item)
        problem = self._ledger.take(node, item)
        if problem:
            self.fail(problem)

    def _begin(self, application: str, shard: str, session: Session) -> None:
        key = application, shard
        before = self._owner.get(key)
        past = self._past.setdefault(key, set())
        if before is not None and before != session:
            past.add(before)
        self._owner[key] = session
        past.discard(session)
        self._last.pop((session, shard), None)

    def _compare(
        self, world: World, ledger: Ledger, application: str, session: Session, item: Updates
    ) -> None:
        mine = ledger.sessions.get(session, {})
        for position, shard, _ in rows_of(item, hosts_of(world).log):
            for each in item.only or tuple(mine) if shard is None else (shard,):
                if each not in mine:
                    self.fail(f"{position} of shard {each!r} comes without a notice of it")
                if session in self._past.get((application, each), ()):
                    owner = self._owner[application, each]
                    self.fail(
                        f"{position} of shard {each!r} comes from {session[2]} after {owner[0]} got it from"
                        f" {owner[2]}"
                    )
                last = self._last.get((session, each))
                if last is not None and position <= last:
                    self.fail(f"{position} of shard {each!r} comes after {last}")
                self._last[session, each] = position


class TrueLosses(Checker):
    """What is told to be lost is so: the log no longer has it, or the application does not want it. Of a log
    that is kept until it is given up nothing is."""

    name = "losses"

    def __init__(self, study: PublisherStudy) -> None:
        self._kept = study.slot

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Handed) and isinstance(item.item, Loss):
            hosts, loss = hosts_of(world), item.item
            config = hosts.applications[node.group]
            gone = max(hosts.log.oldest(address) for address in hosts.publishers)
            if self._kept:
                self.fail(f"{loss.after} to {loss.upto} is lost, which the log was to keep")
            if (
                loss.upto > gone
                and config.mode == "reliable"
                and not config.stale_ms
                and not self._wide_alone(hosts.log, loss, gone)
            ):
                self.fail(
                    f"it is told that {loss.after} to {loss.upto} is lost, and the log has it from {gone} on"
                )

    @staticmethod
    def _wide_alone(log: SimLog, loss: Loss, gone: Position) -> bool:
        """Beyond what is gone it ends with what concerns every shard, and has nothing of the shard's own: a
        shard whose first updates were lost was not known when that came."""
        beyond = [row for row in log.rows if gone < row.position <= loss.upto]
        return (
            loss.after < gone
            and bool(beyond)
            and beyond[-1].shard is None
            and not any(row.shard in loss.shards for row in beyond)
        )


class MarkedIsDone(Checker):
    """A datamarker never goes beyond what the application is done with."""

    name = "marked"

    def __init__(self, study: PublisherStudy) -> None:
        self._seen: dict[tuple[Address, int, str, str], Position] = {}

    def on_step(self, world: World, node: SimNode) -> None:
        if node.group != PUBLISHERS or not node.up:
            return
        for served in publisher_of(node).served.values():
            for flow in served.flows.values():
                key = (node.address, node.life, served.name, flow.shard)
                if self._seen.get(key) == flow.marked:
                    continue
                self._seen[key] = flow.marked
                lacks = hosts_of(world).done.missing(served.name, flow.shard)
                untold = (
                    flow.untold is not None and lacks is not None and flow.untold[0] < lacks <= flow.untold[1]
                )
                if lacks is not None and lacks <= flow.marked and not untold:
                    self.fail(
                        f"shard {flow.shard!r} of {served.name} is marked up to {flow.marked}, but {lacks} is"
                        " not done"
                    )


class Bounded(Checker):
    """Windows, caravans and what waits at subscribers stay within their limits."""

    name = "bounded"

    def __init__(self, study: PublisherStudy) -> None:
        self._study = study

    def on_step(self, world: World, node: SimNode) -> None:
        if node.group == COORDINATOR or not node.up:
            return
        config = self._study.publisher
        room = CHUNK_BYTES * (config.caravans_max + 1)
        bundled = any(application.tolerates_ms for application in self._study.applications.values())
        room += config.held_bytes if bundled else 0
        if node.group == PUBLISHERS:
            machine = publisher_of(node)
            if len(machine.caravans.all) > config.caravans_max:
                self.fail(f"it has {len(machine.caravans.all)} caravans")
            for link in machine.links.values():
                if link.waiting_bytes > link.window + room:
                    self.fail(f"{link.waiting_bytes} bytes wait for {link.address}")
                if len(link.tokens) > 1 + len(link.leaving):
                    self.fail(f"{len(link.tokens)} tokens are under way to {link.address}")
        elif isinstance(node.machine, Subscriber):
            for feed in node.machine.feeds.values():
                waits = sum(
                    ITEM_BYTES + sum(batch.virtual_size for batch in item.batches)
                    for item in feed.queue
                    if isinstance(item, Updates)
                )
                if waits > self._study.window_bytes + room:
                    self.fail(f"{waits} bytes of {feed.address} wait here")


class NothingLost(Checker):
    """After healing every update was handled at least once, or told to be lost; and all of it is marked, with
    one reader left."""

    name = "nothing-lost"

    def waiting_for(self, world: World) -> str | None:
        hosts = hosts_of(world)
        shards = sorted({row.shard for row in hosts.log.rows if row.shard is not None})
        for application in hosts.applications:
            if not any(node.group == application for node in world.node_list):
                continue
            if hosts.begins(application) is None:
                return f"{application} has not begun"
            for shard in shards:
                lacks = hosts.done.missing(application, shard)
                if lacks is not None:
                    return f"{application} lacks {lacks} of shard {shard!r}"
        return self._unmarked(world)

    def _unmarked(self, world: World) -> str | None:
        newest = hosts_of(world).log.newest
        for node in publishers(world):
            machine = publisher_of(node)
            if not node.up:
                return f"{node.address} is down"
            if len(machine.caravans.all) > 1:
                return f"{node.address} has {len(machine.caravans.all)} caravans"
            if machine.snapshots.all:
                return f"{node.address} reads tables"
            for served in machine.served.values():
                for flow in served.flows.values():
                    if served.links and flow.marked < newest:
                        return f"shard {flow.shard!r} of {served.name} is marked up to {flow.marked}"
        return None


class Balanced(Checker):
    """After healing, subscribers of an application have the same number of flows, over all publishers, but
    for one."""

    name = "balanced"

    def waiting_for(self, world: World) -> str | None:
        flows: dict[str, dict[Address, int]] = {}
        for node in world.node_list:
            if node.group not in (PUBLISHERS, COORDINATOR):
                flows.setdefault(node.group, {})[node.address] = 0
        for node in publishers(world):
            for link in publisher_of(node).links.values():
                flows[link.served.name][link.address] += len(link.flows)
        for application, counts in flows.items():
            if max(counts.values()) - min(counts.values()) > 1:
                return f"{application} has {counts}"
        return None


class OneOwner(Checker):
    """A part of an application is served by one copy at a time."""

    name = "one-owner"

    def on_step(self, world: World, node: SimNode) -> None:
        if node.group != PUBLISHERS or not node.up or not serves(node):
            return
        mine = at_work(publisher_of(node))
        if not mine:
            return
        for other in publishers(world):
            if other is not node and other.up and not other.paused and serves(other):
                both = sorted(mine & at_work(publisher_of(other)))
                if both:
                    self.fail(f"part {both[0][1]} of {both[0][0]} is served here and by {other.address}")


class OneHistory(Checker):
    """Whoever reads on knows what the log had at last up to there, in any life and at any copy; else another
    history would pass for it. A caravan whose travellers are all further on, since those for whom it turned
    back got off, is compared when it comes to them."""

    name = "history"

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if not isinstance(item, ReadLog) or item.tables is not None:
            return
        hosts = hosts_of(world)
        for seen in item.seen:
            last = hosts.log.last_before(seen.upto)
            if last is None or mark_of(last) != seen.mark:
                self.fail(f"up to {seen.upto} it takes {seen.mark!r} for the last update, which is {last}")
        known = item.after in hosts.marked and item.after not in hosts.unmarked
        caravan = publisher_of(node).caravans.all.get(item.caravan)
        ahead = caravan is not None and all(one.position > item.after for one in caravan.travellers)
        if known and not ahead and not any(seen.upto <= item.after for seen in item.seen):
            self.fail(f"it reads on after {item.after} without knowing what the log had there")


def at_work(machine: Publisher) -> set[tuple[str, int]]:
    """The parts of applications that somebody has from it, or that it looks at."""
    return {
        (served.name, one.part)
        for served in machine.served.values()
        for one in served.travellers
        if one.caravan is not None or (isinstance(one, Flow) and one.link is not None)
    }


def serves(node: SimNode) -> bool:
    machine = publisher_of(node)
    return not isinstance(machine, CopyPublisher) or machine.session.leased(node.now_us)
