"""The deployment file: regions, replicas, links, streams, in one TOML file. Reading it changes nothing."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from qanat.coordinate import ServerConfig, SessionConfig
from qanat.coordinate.zookeeper import ZooKeeperAccess, ZooKeeperAddress
from qanat.coordinate.zookeeper.address import BadZooKeeperUrl
from qanat.events.batch import stream_id
from qanat.operate.toml_writer import to_toml
from qanat.protocols.chain import ChainConfig
from qanat.protocols.mesh import MeshConfig
from qanat.protocols.proxy_level import ProxyLevelConfig
from qanat.protocols.raft import RaftConfig
from qanat.protocols.views import ViewsConfig
from qanat.replica.settings import StreamSettings
from qanat.runtime.config import BadConfiguration, dotted, load
from qanat.runtime.node_settings import LoggingSettings
from qanat.runtime.settings import TransportSettings
from qanat.runtime.toml_lines import Path as Place
from qanat.runtime.toml_lines import line_of

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A region: a coordinator, and a chain of replicas."""

    replicas: Annotated[int, Meta(ge=1, le=16)] = 2
    """Wanted length of the chain, the paper's f + 1: two replicas survive the loss of one."""
    coordinator: str = ""
    """`zookeeper://host:port,host:port/root` to use that ensemble; empty: the region has a coordinator of its
    own."""
    coordinators: Literal[0, 1, 3] = 0
    """Processes of the region's own coordinator: three survive the loss of any one, disk included. 0: three
    for two replicas or more, else one; the choice stays as it was when the region was created."""


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the link between two regions. All regions are linked, also without such settings."""

    between: tuple[str, str]
    """The two regions."""
    compression: Literal["", "lz4", "zstd"] = ""
    """Codec of the batches sent either way; none by default, because on a fast link it costs more than it
    gains."""


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deployment file of `qanat up`."""

    name: str = "local"
    """Name of the deployment and of its folder."""
    drills: bool = False
    """Whether traffic between regions passes through a process that can cut each link; it costs a hop."""
    first_port: Annotated[int, Meta(ge=0, le=60_000)] = 7500
    """First port of the search for free ports; 0: any port. A node keeps its ports."""
    regions: dict[str, Region] = {}
    links: tuple[Link, ...] = ()
    streams: dict[str, StreamSettings] = {}
    """Streams by name, with their `owner` and the keys of `[log]`."""
    logging: LoggingSettings = LoggingSettings()
    transport: TransportSettings = TransportSettings()
    session: SessionConfig = SessionConfig()
    zookeeper: ZooKeeperAccess = ZooKeeperAccess()
    chain: ChainConfig = ChainConfig()
    proxy_level: ProxyLevelConfig = ProxyLevelConfig()
    mesh: MeshConfig = MeshConfig()
    views: ViewsConfig = ViewsConfig()
    server: ServerConfig = ServerConfig()
    raft: RaftConfig = RaftConfig()

    def compression(self, a: str, b: str) -> str:
        return next((link.compression for link in self.links if set(link.between) == {a, b}), "")


def standard(name: str = "local", *, first_port: int = 7500) -> Deployment:
    """The deployment of `qanat up` without a file."""
    regions = {region: Region() for region in ("eu", "us", "asia")}
    streams = {f"{region}-events": StreamSettings(owner=region) for region in regions}
    return Deployment(name=name, drills=True, first_port=first_port, regions=regions, streams=streams)


def read(path: str | os.PathLike[str]) -> Deployment:
    """Raises `BadConfiguration` with the file, the line, and what was expected there."""
    deployment = load(Deployment, file=Path(path)).settings
    for place, what in mistakes(deployment):
        line = line_of(Path(path).read_text(encoding="utf-8"), place)
        raise BadConfiguration(f"`{dotted(place)}` (file {path}, line {line}) {what}")
    return deployment


def decided(new: Deployment, old: Deployment | None) -> Deployment:
    """With the number of each region's coordinators: as it was, for a region that is there already."""
    regions = {}
    for name, spec in new.regions.items():
        count, was = spec.coordinators, None if old is None else old.regions.get(name)
        if not count and not spec.coordinator:
            count = (was.coordinators or 1) if was is not None else by_default(spec)
        regions[name] = msgspec.structs.replace(spec, coordinators=count)
    return msgspec.structs.replace(new, regions=regions)


def by_default(region: Region) -> Literal[1, 3]:
    """Who survives the loss of a replica should survive the loss of a coordinator as well."""
    return 3 if region.replicas > 1 else 1


def write(deployment: Deployment) -> str:
    """The file that `read` gives back as this deployment."""
    return to_toml(changed(deployment))


def changed(settings: msgspec.Struct) -> dict[str, object]:
    """What differs from the defaults, as a plain tree."""
    out: dict[str, object] = {}
    for info in msgspec.structs.fields(type(settings)):
        value = getattr(settings, info.name)
        if value == _default(info):
            continue
        out[info.name] = _plain(value)
    return out


def _plain(value: object) -> object:
    match value:
        case msgspec.Struct():
            return changed(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case tuple() | list():
            return [_plain(each) for each in value]
    return msgspec.to_builtins(value)


def _default(info: msgspec.structs.FieldInfo) -> object:
    return info.default_factory() if callable(info.default_factory) else info.default


def mistakes(deployment: Deployment) -> Iterator[tuple[Place, str]]:
    """What each part allows and the whole does not: the place, and the sentence."""
    regions = deployment.regions
    named = ", ".join(regions)
    if not _NAME.fullmatch(deployment.name):
        yield ("name",), f"cannot be {deployment.name!r}: expected small letters, digits and dashes"
    if not regions:
        yield ("regions",), "is empty: expected at least one region, as [regions.eu]"
    for region, spec in regions.items():
        if not _NAME.fullmatch(region):
            yield ("regions", region), "is no name of a region: expected small letters, digits and dashes"
        if spec.coordinators and spec.coordinator:
            yield (
                ("regions", region, "coordinators"),
                "is for a region's own coordinator, and this region uses ZooKeeper: leave it out",
            )
        try:
            _ = ZooKeeperAddress.parse(spec.coordinator) if spec.coordinator else None
        except BadZooKeeperUrl as error:
            yield ("regions", region, "coordinator"), f"is wrong: {error}"
    seen: set[frozenset[str]] = set()
    for number, link in enumerate(deployment.links):
        place: Place = ("links", number, "between")
        for end in link.between:
            if end not in regions:
                yield place, f"names {end!r}: expected two of the regions {named}"
        pair = frozenset(link.between)
        if len(pair) == 1:
            yield place, f"links {link.between[0]!r} with itself: expected two of the regions {named}"
        if pair in seen:
            yield place, f"names the link {' – '.join(link.between)} a second time"
        seen.add(pair)
    numbers: dict[int, str] = {}
    for name, stream in deployment.streams.items():
        if stream.owner not in regions:
            yield ("streams", name, "owner"), f"is {stream.owner!r}: expected one of the regions {named}"
        if not name or len(name.encode()) > 200 or not name.isprintable():
            yield ("streams", name), "is no name of a stream: expected 1 to 200 printable bytes"
        other = numbers.setdefault(stream_id(name), name)
        if other != name:
            yield ("streams", name), f"has the same identifier as {other!r}: take another name"
