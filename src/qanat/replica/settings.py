"""What the processes of a region can be told: its replicas, and its coordinator."""

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
    """The region that this replica belongs to."""

    name: Annotated[
        str, setting("Name of the region.", why="streams name their owner by it", min_length=1)
    ] = "local"
    replicas: Annotated[
        int,
        setting(
            "Wanted length of the chain, the paper's f + 1.",
            why="two survive the loss of one",
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
            "Its node's name; of an ensemble of three, what is before `-1`, `-2`, `-3` in theirs; with"
            " ZooKeeper any will do.",
            min_length=1,
        ),
    ] = "local/coordinator"
    url: Annotated[
        str,
        setting(
            "Where it is: `qanat://host:port`, the three of an ensemble in the order of their names"
            " `qanat://host:port,host:port,host:port`, or `zookeeper://host:port,host:port/root`.",
            why="one below the first replica",
            min_length=1,
        ),
    ] = "qanat://127.0.0.1:7410"

    def __post_init__(self) -> None:
        check_coordinator(self.name, self.url)


class MemberSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another member of this coordinator's ensemble."""

    url: Annotated[str, setting("Where it can be dialled.", min_length=1)]


class PeerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another replica, of this region or another."""

    url: Annotated[str, setting("Where it can be dialled.", min_length=1)]
    compression: Annotated[
        Literal["", "lz4", "zstd"],
        setting(
            "Codec of the batches sent to it; empty sends them as they are.",
            why="within one place a link is faster than a codec",
        ),
    ] = ""


class StreamSettings(LogConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stream of the deployment: who owns it, and how every proxy keeps it."""

    owner: str
    """The region whose head numbers its events; publishers elsewhere are told its name."""


LIVE = rekeeping.LIVE - {"mode"}
"""Keys of a stream that replicas change while they run; what was acknowledged under one durability is not
counted under another, so that takes a new life, one replica after the other."""


class ProxySettings(Settings, frozen=True, forbid_unknown_fields=True):
    """All settings of a replica of a region's proxy. `[region]`'s `replicas` stands for `[chain]`'s own."""

    region: RegionSettings = RegionSettings()
    coordinator: CoordinatorAddress = CoordinatorAddress()
    peers: Annotated[
        dict[str, PeerSettings],
        setting(
            'Every other replica of every region, by name: `[peers."eu/proxy-2"]`, then `url`.', reload=True
        ),
    ] = msgspec.field(default_factory=dict)
    streams: Annotated[
        dict[str, StreamSettings],
        setting(
            "Every stream of the deployment, by name: `[streams.prices]`, then `owner` and the keys of a"
            " log.",
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
            " this one serves alone.",
            why="an ensemble goes on, and loses nothing, when any one of its machines is lost",
        ),
    ] = msgspec.field(default_factory=dict)
    server: ServerConfig = ServerConfig()
    raft: RaftConfig = RaftConfig()

    def __post_init__(self) -> None:
        if len(self.peers) not in (0, 2) or self.node.name in self.peers:
            raise ValueError("an ensemble has three members: peers names the two others, or nobody")
