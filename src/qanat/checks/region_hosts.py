"""Whole regions under the simulator: chains with the proxy level at their ends, and a coordinator for
each."""

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from qanat.checks.chain_hosts import REPLICAS, Hosts, Mode, replicas
from qanat.checks.coordinator_hosts import COORDINATOR, coordinators
from qanat.coordinate import ServerConfig, Session, SessionConfig
from qanat.events.batch import stream_id
from qanat.kernel import Address, Context, Factory
from qanat.log.config import Policy
from qanat.protocols.chain import ChainConfig, Replica
from qanat.protocols.proxy_level import ProxyLevelConfig
from qanat.protocols.raft import RaftConfig
from qanat.protocols.region import RegionConfig, RegionReplica
from qanat.serving.log_history import LogHistory
from qanat.sim import Place, SimNode, World
from qanat.sim.units import MS


class RegionStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of all parts, as a scenario's `[config]`."""

    chain: ChainConfig = ChainConfig()
    proxy_level: ProxyLevelConfig = ProxyLevelConfig()
    session: SessionConfig = SessionConfig()
    server: ServerConfig = ServerConfig()
    raft: RaftConfig = RaftConfig()
    """Of the coordinators, where a scenario has three in a region."""
    policy: Policy = Policy()
    """Of every stream: what it collects by itself."""
    mode: Mode = "always"
    """Of every stream: on disk, or in memory alone."""
    sync_ms: tuple[float, float] = (0.2, 4.0)
    """How long a sync of the log takes, drawn for each."""


class RegionHosts(Hosts):
    """Every region has a stream and a quiet one, its replicas, and a coordinator of its own."""

    def __init__(self, study: RegionStudy, replica: type[RegionReplica], places: Sequence[Place]) -> None:
        super().__init__(study.server, study.sync_ms, study.policy, study.mode, study.raft)
        self._study, self._replica = study, replica
        found = {place.region for place in places if place.group == COORDINATOR}
        self._coordinators = {region: coordinators(places, region) for region in sorted(found)}
        self._replicas = [(place.region, place.address) for place in places if place.group == REPLICAS]
        regions = sorted(self._coordinators)
        self._owners = {
            stream: region for region in regions for stream in (stream_of(region), quiet_stream_of(region))
        }

    def make_replica(self, context: Context, node: SimNode, history: LogHistory) -> Replica:
        study, region = self._study, node.region
        return self._replica(
            context,
            RegionConfig(study.chain, study.proxy_level),
            history,
            lambda context, listener: Session(context, study.session, self._coordinators[region], listener),
            region=region,
            owners=self._owners,
            remote=[address for where, address in self._replicas if where != region],
            folder=f"/chains/{region}",
            wary_us=study.session.outlasts_us(round(study.session.timeout_ms * MS)),
            named=[address for where, address in self._replicas if where == region],
        )


def builder(
    replica: type[RegionReplica] = RegionReplica,
) -> Callable[[RegionStudy, Sequence[Place]], Factory]:
    """How a scenario's nodes are made; tests put broken replicas in."""

    def build(study: RegionStudy, places: Sequence[Place]) -> Factory:
        return RegionHosts(study, replica, places).make

    return build


def stream_of(region: str) -> int:
    return stream_id(f"{region}/stream")


def quiet_stream_of(region: str) -> int:
    """Opened by publishers, and never published to."""
    return stream_id(f"{region}/quiet")


def region_of(node: SimNode) -> RegionReplica:
    return cast(RegionReplica, node.machine)


def regions(world: World) -> list[str]:
    return sorted({node.region for node in world.node_list})


def replicas_in(world: World, region: str) -> list[SimNode]:
    return [node for node in replicas(world) if node.region == region]


def addresses_in(world: World, region: str) -> list[Address]:
    return [node.address for node in replicas_in(world, region)]
