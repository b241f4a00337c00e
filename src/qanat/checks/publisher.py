"""Publishers and subscribers under the simulator: what writers and operators do. What is promised is in
`publisher_checkers`."""

import msgspec

from qanat.checks.publisher_checkers import (
    Balanced,
    Bounded,
    InOrder,
    MarkedIsDone,
    NothingLost,
    OneHistory,
    OneOwner,
    TrueLosses,
)
from qanat.checks.publisher_hosts import PublisherStudy, builder, hosts_of, publishers
from qanat.protocols.publisher.reading import Configure, Give
from qanat.protocols.publisher.subscriber import GiveUp, Subscriber
from qanat.sim import ProtocolKit, Workload, World, by_name
from qanat.sim.units import MS, S

COLOURS = ("red", "blue")


class Writing(Workload, frozen=True, tag="writing"):
    """Transactions of a few updates; shards that appear with time; now and then an update that concerns
    all."""

    every_ms: float = 25.0
    updates: int = 4
    """At most, of one transaction."""
    shards: int = 8
    wide: float = 0.02
    """How often an update concerns every shard."""
    cut_every_s: float = 0.0
    """The log is cut this often, at each copy; 0: never."""
    keep: int = 40
    """What is left of it, in updates."""
    away_every_s: float = 0.0
    """A copy's datastore goes away this often, for up to a second, while its publisher stays; 0: never."""
    give_away_every_s: float = 0.0
    """A random subscriber wants to be rid of its shards this often; 0: never."""
    reload_every_s: float = 0.0
    """Publishers are told their settings again this often, with other limits; 0: never."""
    operate_every_s: float = 0.0
    """An operator gives shards to a subscriber, or keeps flows together, or lets the policy decide again,
    this often; 0: never."""
    until_s: float = 4.0

    def start(self, world: World) -> None:
        world.after(100 * MS, self._write, world)
        for every_s, action in (
            (self.cut_every_s, self._cut),
            (self.away_every_s, self._send_away),
            (self.give_away_every_s, self._give_away),
            (self.reload_every_s, self._reload),
            (self.operate_every_s, self._operate),
        ):
            if every_s:
                world.after(round(every_s * S), self._now_and_then, world, every_s, action)
        if self.operate_every_s:
            world.after(round(self.until_s * S), self._let_go, world)

    def _now_and_then(self, world: World, every_s: float, action: object) -> None:
        if world.now < self.until_s * S and callable(action):
            action(world)
            world.after(
                round(every_s * S * (0.5 + world.workload_rng.random())),
                self._now_and_then,
                world,
                every_s,
                action,
            )

    def _write(self, world: World) -> None:
        if world.now > self.until_s * S:
            return
        rng = world.workload_rng
        known = 1 + int(self.shards * world.now / (self.until_s * S))
        updates: list[tuple[str | None, str]] = [
            (None if rng.random() < self.wide else f"s{rng.randrange(known)}", rng.choice(COLOURS))
            for _ in range(rng.randint(1, self.updates))
        ]
        hosts_of(world).log.write(updates, world.now)
        world.after(round(self.every_ms * MS * (0.5 + rng.random())), self._write, world)

    def _cut(self, world: World) -> None:
        for node in publishers(world):
            hosts_of(world).log.cut(node.address, world.workload_rng.randint(1, self.keep))

    def _send_away(self, world: World) -> None:
        node = world.workload_rng.choice(publishers(world))
        hosts_of(world).away_until_us[node.address] = world.now + round(world.workload_rng.random() * S)

    def _give_away(self, world: World) -> None:
        node = world.workload_rng.choice(world.node_list)
        if node.up and isinstance(node.machine, Subscriber):
            node.request(GiveUp(tuple(f"s{number}" for number in range(self.shards) if world.draw() < 0.5)))

    def _reload(self, world: World) -> None:
        hosts, rng = hosts_of(world), world.workload_rng
        changed = msgspec.structs.replace(
            hosts.study.publisher,
            near=rng.choice((0, 10, 100)),
            read_rows=rng.randint(3, 40),
            policy=rng.choice(("threshold", "least-waiting")),
        )
        for node in publishers(world):
            lease_ms = hosts.study.publisher.lease_ms * rng.choice((0.2, 1.0, 2.0))
            node.request(Configure(hosts.applications, msgspec.structs.replace(changed, lease_ms=lease_ms)))

    def _operate(self, world: World) -> None:
        hosts, rng = hosts_of(world), world.workload_rng
        application = rng.choice(sorted(hosts.applications))
        shards = tuple(f"s{number}" for number in range(self.shards) if rng.random() < 0.4)
        for node in publishers(world):
            if rng.random() < 0.4:
                there = [other.address for other in world.node_list if other.group == application]
                node.request(Give(application, rng.choice(there), shards))
                continue
            members = rng.choice(((application,), tuple(f"{application}/{shard}" for shard in shards), ()))
            companies = {"apart": members, "later": (rng.choice(sorted(hosts.applications)),)}
            chosen = {name: some for name, some in companies.items() if rng.random() < 0.6}
            node.request(Configure(hosts.applications, hosts.study.publisher, chosen))

    def _let_go(self, world: World) -> None:
        hosts = hosts_of(world)
        for node in publishers(world):
            node.request(Configure(hosts.applications, hosts.study.publisher))


KIT = ProtocolKit(
    name="publisher",
    config=PublisherStudy,
    build=builder(),
    checkers=by_name(InOrder, TrueLosses, MarkedIsDone, Bounded, NothingLost, OneOwner, OneHistory, Balanced),
    workloads=(Writing,),
)
