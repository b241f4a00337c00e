"""Chains of replicas under the simulator: how they are built, and what is around the machines."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import msgspec

from qanat.checks.coordinator_hosts import COORDINATOR, coordinator_machine, coordinators
from qanat.coordinate import ServerConfig, Session, SessionConfig
from qanat.events.batch import stream_id
from qanat.kernel import Address, Context, Factory, Machine
from qanat.log import LogConfig
from qanat.log.config import Policy
from qanat.log.errors import DiskFailed, DiskFull
from qanat.protocols.chain import Chain, ChainConfig, Replica, Reset, WasReset
from qanat.protocols.history import Synced
from qanat.protocols.raft import RaftConfig
from qanat.serving.log_history import LogHistory
from qanat.sim import Place, SimDisk, SimNode, World
from qanat.sim.units import MS

REPLICAS = "proxy"
Mode = Literal["always", "memory"]
OWNED = tuple(stream_id(f"owned-{number}") for number in range(2))
REMOTE = stream_id("remote")
QUIET = stream_id("quiet")
"""Owned as well, opened by publishers, and never published to."""


class ChainStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of all parts, as a scenario's `[config]`."""

    chain: ChainConfig = ChainConfig()
    session: SessionConfig = SessionConfig()
    server: ServerConfig = ServerConfig()
    raft: RaftConfig = RaftConfig()
    """Of the coordinators, where a scenario has three."""
    by_key: bool = False
    """Collect earlier events of the same key, so that replicas that join get tombstones."""
    sync_ms: tuple[float, float] = (0.2, 4.0)
    """How long a sync of the log takes, drawn for each."""


def log_config(policy: Policy, mode: Mode) -> LogConfig:
    return LogConfig(
        mode=mode,
        segment_bytes=64 * 1024,
        tail_bytes=64 * 1024,
        policy=policy,
        index_keys_max=1000 if policy.by_key else 0,
    )


class Hosts:
    """What is outside of the machines: disks that survive crashes, syncs that take time, wiping on demand."""

    def __init__(
        self,
        server: ServerConfig,
        sync_ms: tuple[float, float],
        policy: Policy,
        mode: Mode = "always",
        raft: RaftConfig | None = None,
    ) -> None:
        self._raft = raft or RaftConfig()
        self._server, self._sync_ms, self._log_config = server, sync_ms, log_config(policy, mode)
        self._disks: dict[Address, SimDisk] = {}
        self._hooked = False
        self._syncing: set[tuple[Address, int, int]] = set()

    def make(self, context: Context) -> Machine[Any, Any]:
        node = cast(SimNode, context)
        if not self._hooked:
            self._hooked = True
            node.world.deliver_hooks.append(self._on_deliver)
        if node.group == COORDINATOR:
            same_region = [
                other.address
                for other in node.world.node_list
                if other.group == COORDINATOR and other.region == node.region
            ]
            return coordinator_machine(context, self._server, self._raft, same_region)
        return self.make_replica(context, node, self._open_history(node))

    def make_replica(self, context: Context, node: SimNode, history: LogHistory) -> Replica:
        raise NotImplementedError

    def _open_history(self, node: SimNode) -> LogHistory:
        disk = self._disks.get(node.address)
        if disk is None:
            rng = random.Random(f"{node.world.seed}/{node.address}")
            disk = self._disks[node.address] = SimDisk(rng, full=DiskFull, failed=DiskFailed)
        else:
            disk.crash()
        return LogHistory(
            disk, "log", lambda stream: self._log_config, lambda stream: self._sync_soon(node, stream)
        )

    def _sync_soon(self, node: SimNode, stream: int) -> None:
        key = (node.address, node.life, stream)
        if key not in self._syncing:
            self._syncing.add(key)
            low, high = self._sync_ms
            delay_ms = low + (high - low) * node.world.draw()
            node.world.after(round(delay_ms * MS), self._sync, node, node.life, stream)

    def _sync(self, node: SimNode, life: int, stream: int) -> None:
        if node.life == life and node.disk_stuck:
            node.world.after(MS, self._sync, node, life, stream)
            return
        self._syncing.discard((node.address, life, stream))
        if node.life != life or not node.up:
            return
        history = history_of(node)
        if stream in history.logs:
            node.request(Synced(stream, history.sync(stream)), life)

    def _on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Reset):
            world.after(MS, self._reset, node, node.life, item.stream)

    def _reset(self, node: SimNode, life: int, stream: int) -> None:
        if node.life == life and node.disk_stuck:
            node.world.after(MS, self._reset, node, life, stream)
        elif node.life == life and node.up:
            history_of(node).reset(stream)
            node.request(WasReset(stream), life)


class ChainHosts(Hosts):
    """One chain and its coordinator, which may be an ensemble."""

    def __init__(
        self, study: ChainStudy, replica: type[Replica], coordinator: Address | Sequence[Address]
    ) -> None:
        super().__init__(study.server, study.sync_ms, Policy(by_key=study.by_key), raft=study.raft)
        self._study, self._replica, self._coordinator = study, replica, coordinator

    def make_replica(self, context: Context, node: SimNode, history: LogHistory) -> Replica:
        study = self._study
        return self._replica(
            context,
            study.chain,
            history,
            lambda context, listener: Session(context, study.session, self._coordinator, listener),
            owns=(*OWNED, QUIET).__contains__,
            folder="/chains/eu",
            wary_us=study.session.outlasts_us(round(study.session.timeout_ms * MS)),
            named=[other.address for other in node.world.node_list if other.group == REPLICAS],
        )


def builder(replica: type[Replica] = Replica) -> Callable[[ChainStudy, Sequence[Place]], Factory]:
    """How a scenario's nodes are made; tests put broken replicas in."""

    def build(study: ChainStudy, places: Sequence[Place]) -> Factory:
        return ChainHosts(study, replica, coordinators(places)).make

    return build


def chain_of(node: SimNode) -> Chain:
    return cast(Replica, node.machine).chain


def history_of(node: SimNode) -> LogHistory:
    return cast(LogHistory, chain_of(node).history)


def replicas(world: World) -> list[SimNode]:
    return [node for node in world.node_list if node.group == REPLICAS]
