"""Scenario files: nodes, links, a protocol with its settings, a workload, faults and checkers.

A scenario says what happens, not how: it names a protocol, workload and checkers that some code has put
into a `ProtocolKit`. See docs/simulation.md for an annotated file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from qanat.kernel import Address, Factory
from qanat.sim.check import Checker
from qanat.sim.faults import AnyFault, Fault, matches
from qanat.sim.journal import DiskSpec
from qanat.sim.links import Links, LinkSpec
from qanat.sim.strict import BadScenario, convert, read_toml, unknown
from qanat.sim.swarm import Swarm

if TYPE_CHECKING:
    from qanat.sim.world import World


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes alike: `count` of them, called `region/name-1` and so on."""

    name: str
    count: int = 1
    region: str = ""
    uplink_mbit_s: float | None = None
    """What one node may send in all; none: no limit but the links'."""
    downlink_mbit_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.count <= 1_000_000:
            raise ValueError("count must lie between 1 and 1000000")
        for name in ("uplink_mbit_s", "downlink_mbit_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0; leave it out for no limit")


class Phases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First faults and safety, then a healed network and liveness."""

    safety_s: float = 30.0
    """Virtual time during which faults happen."""
    liveness_s: float = 60.0
    """At most this long after healing; the run ends as soon as no checker waits for anything."""
    poll_ms: float = 100.0
    """How often liveness is looked at."""

    def __post_init__(self) -> None:
        if self.safety_s <= 0 or self.liveness_s < 0 or self.poll_ms <= 0:
            raise ValueError("safety_s and poll_ms must be above 0, liveness_s not negative")


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkers: tuple[str, ...] = ()
    every: int = 1
    """Steps between two looks; 1 misses nothing, more is faster in large worlds."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError("every must be at least 1")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    protocol: str
    nodes: tuple[Group, ...]
    about: str = ""
    links: dict[str, Any] = {}
    disk: DiskSpec = DiskSpec()
    config: dict[str, Any] = {}
    workload: dict[str, Any] | None = None
    faults: tuple[AnyFault, ...] = ()
    swarm: Swarm | None = None
    time: Phases = Phases()
    check: Checks = Checks()


class Place(NamedTuple):
    """Where one node is."""

    address: Address
    region: str
    group: str


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """What applications do during a run: `start` schedules requests with `world.at` and `node.request`."""

    def start(self, world: "World") -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class ProtocolKit:
    """A protocol as scenarios know it."""

    name: str
    config: type[msgspec.Struct]
    build: Callable[[Any, Sequence[Place]], Factory]
    """Given the settings and all places, makes the factory of every node's machine."""
    checkers: Mapping[str, Callable[[Any], Checker]]
    """By name; each is given the settings."""
    workloads: Sequence[type[Workload]] = ()


@dataclass(frozen=True)
class Scenario:
    """A file, read and checked."""

    path: Path
    kit: ProtocolKit
    about: str
    groups: tuple[Group, ...]
    links: Links
    disk: DiskSpec
    config: msgspec.Struct
    workload: Workload | None
    faults: tuple[Fault, ...]
    swarm: Swarm | None
    time: Phases
    check: Checks
    places: tuple[Place, ...]


def load(path: Path, kits: Mapping[str, ProtocolKit]) -> Scenario:
    """Read a scenario; `BadScenario` says what is wrong with it and what exists."""
    where = path.name
    file = convert(read_toml(path), _File, where)
    kit = kits.get(file.protocol)
    if kit is None:
        raise unknown("protocol", file.protocol, kits, where)
    for name in file.check.checkers:
        if name not in kit.checkers:
            raise unknown("checker", name, kit.checkers, f"{where}.check.checkers")
    places = _places(file.nodes, where)
    _check_patterns(file, places, where)
    return Scenario(
        path=path,
        kit=kit,
        about=file.about,
        groups=file.nodes,
        links=_links(file, where),
        disk=file.disk,
        config=convert(file.config, kit.config, f"{where}.config"),
        workload=_workload(file.workload, kit, where),
        faults=tuple(file.faults),
        swarm=file.swarm,
        time=file.time,
        check=file.check,
        places=places,
    )


def _places(groups: Sequence[Group], where: str) -> tuple[Place, ...]:
    if not groups:
        raise BadScenario(f"{where}: no nodes; write at least one [[nodes]] table")
    places = []
    for group in groups:
        prefix = f"{group.region}/{group.name}" if group.region else group.name
        for number in range(1, group.count + 1):
            places.append(Place(Address(f"{prefix}-{number}"), group.region, group.name))
    if len({place.address for place in places}) < len(places):
        raise BadScenario(f"{where}: two groups of nodes have the same name and region")
    return tuple(places)


def _check_patterns(file: _File, places: Sequence[Place], where: str) -> None:
    """A fault that names nobody would do nothing, in silence."""
    named = [(f"{where}.faults[{index}]", fault.patterns()) for index, fault in enumerate(file.faults)]
    if file.swarm is not None:
        named.append((f"{where}.swarm", [file.swarm.nodes]))
    for here, groups in named:
        for patterns in groups:
            if not any(matches(place.address, patterns) for place in places):
                raise BadScenario(f"{here}: no node matches {', '.join(map(repr, patterns))}")


def _workload(table: dict[str, Any] | None, kit: ProtocolKit, where: str) -> Workload | None:
    if table is None:
        return None
    kinds = {str(kind.__struct_config__.tag): kind for kind in kit.workloads}
    if "kind" not in table:
        raise BadScenario(f"{where}.workload: `kind` is missing; it is one of: {', '.join(kinds)}")
    kind = kinds.get(str(table["kind"]))
    if kind is None:
        raise unknown("workload", str(table["kind"]), kinds, f"{where}.workload")
    return convert(table, kind, f"{where}.workload")


def _links(file: _File, where: str) -> Links:
    """`[links.default]`; `[links.within]` and each `[[links.between]]` change some of it."""
    for key in file.links:
        if key not in ("default", "within", "between"):
            raise unknown("key", key, ("default", "within", "between"), f"{where}.links")
    base = file.links.get("default", {})
    default = convert(base, LinkSpec, f"{where}.links.default")
    regions = {group.region for group in file.nodes}
    between: dict[tuple[str, str], LinkSpec] = {}
    for index, table in enumerate(file.links.get("between", [])):
        here = f"{where}.links.between[{index}]"
        pair = table.get("regions")
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadScenario(f'{here}: `regions` must name two regions, for example ["eu", "us"]')
        for region in pair:
            if region not in regions:
                raise unknown("region", str(region), sorted(regions), here)
        change = {key: value for key, value in table.items() if key != "regions"}
        between[pair[0], pair[1]] = convert({**base, **change}, LinkSpec, here)
    return Links(
        default,
        within=convert({**base, **file.links.get("within", {})}, LinkSpec, f"{where}.links.within"),
        between=between,
    )
