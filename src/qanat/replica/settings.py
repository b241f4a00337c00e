"""Settings of the processes of a region: its replicas and its coordinator."""

from typing import Annotated, Literal

import msgspec

from qanat.coordinate import ServerConfig, SessionConfig
from qanat.coordinate.zookeeper import ZooKeeperAccess
from qanat.log import rekeeping
from qanat.log.config import LogConfig
from qanat.protocols.chain import ChainConfig
from qanat.protocols.mesh import MeshConfig
from qanat.protocols.proxy_level import ProxyLevelConfig
from qanat.protocols.raft import RaftConfig
from qanat.protocols.views import ViewsConfig
from qanat.replica.coordination import check_coordinator
from qanat.runtime.node_settings import Settings
from qanat.runtime.settings import setting
from qanat.serving.caravan_settings import CARAVANS, CaravansConfig


class RegionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region of this replica."""

    name: Annotated[
        str, setting("Name of the region.", why="a stream's owner is a region's name", min_length=1)
    ] = "local"
    replicas: Annotated[
        int,
        setting(
            "Wanted length of the chain, the paper's f + 1.",
            why="two replicas survive the loss of one",
            ge=1,
            le=64,
            reload=True,
        ),
    ] = 2
    collect_ms: Annotated[
        int,
        setting(
            "Pause between two rounds of garbage collection.",
            unit="ms",
            why="rewriting is bulk work: rare enough to be invisible, often enough to keep the disk flat",
            ge=10,
            reload=True,
        ),
    ] = 1_000


class CoordinatorAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The coordinator of this region."""

    name: Annotated[
        str,
        setting(
            "Node name of the coordinator; of an ensemble of three, the part before `-1`, `-2`,"
            " `-3`; with ZooKeeper any name.",
            min_length=1,
        ),
    ] = "local/coordinator"
    url: Annotated[
        str,
        setting(
            "Address of the coordinator: `qanat://host:port`, the three of an ensemble in the order"
            " of their names `qanat://host:port,host:port,host:port`, or"
            " `zookeeper://host:port,host:port/root`.",
            why="the port is one below the first replica's",
            min_length=1,
        ),
    ] = "qanat://127.0.0.1:7410"

    def __post_init__(self) -> None:
        check_coordinator(self.name, self.url)


class MemberSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another member of this coordinator's ensemble."""

    url: Annotated[str, setting("Address of the member, as `qanat://host:port`.", min_length=1)]


class PeerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another replica, of this region or another."""

    url: Annotated[str, setting("Address of the replica, as `qanat://host:port`.", min_length=1)]
    compression: Annotated[
        Literal["", "lz4", "zstd"],
        setting(
            "Codec of the batches sent to this replica; empty: no compression.",
            why="within one place a link is faster than a codec",
        ),
    ] = ""


class StreamSettings(LogConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream of the deployment: its owner, and the settings of its log at every proxy."""

    owner: str
    """The region whose head numbers the events; publishers in other regions are refused with its name."""


LIVE = rekeeping.LIVE - {"mode"}
"""Keys of a stream that replicas change while they run; what was acknowledged under one durability is not
counted under another, so that takes a new life, one replica after the other."""


class ProxySettings(Settings, frozen=True, forbid_unknown_fields=True):
    """All settings of a replica of a region's proxy. `replicas` of `[region]` overrides that of `[chain]`."""

    region: RegionSettings = RegionSettings()
    coordinator: CoordinatorAddress = CoordinatorAddress()
    peers: Annotated[
        dict[str, PeerSettings],
        setting(
            'All other replicas of all regions, by name: `[peers."eu/proxy-2"]`, then `url`.', reload=True
        ),
    ] = msgspec.field(default_factory=dict)
    streams: Annotated[
        dict[str, StreamSettings],
        setting(
            "All streams of the deployment, by name: `[streams.prices]`, then `owner` and the keys"
            " of `[log]`.",
            reload=True,
        ),
    ] = msgspec.field(default_factory=dict)
    chain: ChainConfig = ChainConfig()
    proxy_level: ProxyLevelConfig = ProxyLevelConfig()
    session: SessionConfig = SessionConfig()
    zookeeper: ZooKeeperAccess = ZooKeeperAccess()
    mesh: MeshConfig = MeshConfig()
    views: ViewsConfig = ViewsConfig()
    caravans: Annotated[CaravansConfig, CARAVANS] = CaravansConfig()


class CoordinatorSettings(Settings, frozen=True, forbid_unknown_fields=True):
    """All settings of a region's coordinator."""

    peers: Annotated[
        dict[str, MemberSettings],
        setting(
            'The two others of an ensemble of three, by name: `[peers."eu/coordinator-2"]`, then `url`. None:'
            " this coordinator serves alone.",
            why="an ensemble survives the loss of any one machine, and loses nothing",
        ),
    ] = msgspec.field(default_factory=dict)
    server: ServerConfig = ServerConfig()
    raft: RaftConfig = RaftConfig()

    def __post_init__(self) -> None:
        if len(self.peers) not in (0, 2) or self.node.name in self.peers:
            raise ValueError("an ensemble has three members: name the two others in peers, or none")
