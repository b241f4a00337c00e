"""What operators ask of a publisher while it runs: look at flows, change applications and limits, override
decisions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.publisher.config import PublisherConfig
from qanat.protocols.publisher.flows import Flow, Served
from qanat.protocols.publisher.link import Link
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.reading import Give, Move
from qanat.publisher.changes import Changes
from qanat.publisher.settings import ApplicationSettings
from qanat.publisher.status import flow_page
from qanat.runtime.clocks import wall_clock_us
from qanat.runtime.config import load

if TYPE_CHECKING:
    from qanat.publisher.node import PublisherNode

_FIXED = ("parts",)
"""Limits that stay: datamarkers are kept by part."""


class PublisherAdmin:
    """Pages and actions of the node's HTTP. An action that returns is on disk, and what it says is under
    way."""

    def __init__(self, node: "PublisherNode") -> None:
        self._node = node
        node.admin.pages |= {"/flows": self.flows, "/applications": self.applications, "/limits": self.limits}
        node.admin.actions |= {
            "/applications": self.change_application,
            "/limits": self.change_limits,
            "/move": self.move,
        }

    @property
    def _machine(self) -> Publisher:
        if self._node.machine is None:
            waits = f", and waits: {self._node.waits}" if self._node.waits else "; try again in a moment"
            raise LocalError(f"the publisher is starting{waits}")
        return self._node.machine

    # --- pages --------------------------------------------------------------------------------------

    def flows(self, query: dict[str, str]) -> object:
        if "application" in query:
            self._served(query["application"])
        return flow_page(self._machine, wall_clock_us(), query)

    def applications(self, query: dict[str, str]) -> object:
        """Every setting of each, and whether the file says so or an operator."""
        said, changes = self._node.said.applications, self._node.changes.applications
        now = self._node.settings.applications
        return {
            "applications": {
                name: {
                    "settings": msgspec.to_builtins(config),
                    "from": _origin(name in said, name in changes),
                }
                for name, config in now.items()
            },
            "removed": sorted(name for name, fields in changes.items() if fields is None and name in said),
        }

    def limits(self, query: dict[str, str]) -> object:
        said, changes = self._node.said.publisher, self._node.changes.publisher
        now = msgspec.to_builtins(self._node.settings.publisher)
        return {
            "limits": {
                name: {
                    "value": value,
                    "file": getattr(said, name),
                    "from": _origin(True, name in changes),
                    "fixed": name in _FIXED,
                }
                for name, value in now.items()
            }
        }

    # --- actions ------------------------------------------------------------------------------------

    def change_application(self, asked: Mapping[str, Any]) -> object:
        """`do`: add, change, remove or reset; `name`; `settings`: texts `key=value`."""
        do, name = asked.get("do"), str(asked.get("name", ""))
        settings, changes = self._node.settings.applications, dict(self._node.changes.applications)
        if do == "add":
            if name in settings:
                raise LocalError(f"there is an application {name!r}; use change, or remove it first")
            changes[name] = _given(ApplicationSettings, asked)
        elif do == "reset":
            if name not in changes:
                raise LocalError(f"nothing was changed of {name!r}; {_there('changes of', changes)}")
            del changes[name]
        elif name not in settings:
            raise LocalError(f"there is no application {name!r}; {_there('', settings)}")
        elif do == "change":
            given = _given(ApplicationSettings, asked)
            if not given:
                raise LocalError("say what to change, as where='#table = orders'")
            changes[name] = {**(changes.get(name) or {}), **given}
        elif do == "remove":
            if name in self._node.said.applications:
                changes[name] = None
            else:
                del changes[name]
        else:
            raise LocalError(f"{do!r} is nothing to do with an application; add, change, remove or reset it")
        self._change(msgspec.structs.replace(self._node.changes, applications=changes))
        return self.applications({})

    def change_limits(self, asked: Mapping[str, Any]) -> object:
        """`settings`: texts `key=value`; `reset`: names that are to be as the file says."""
        changes = dict(self._node.changes.publisher) | _given(PublisherConfig, asked)
        for name in asked.get("reset", ()):
            if name not in changes:
                raise LocalError(f"{name} was not changed; {_there('changes of', changes)}")
            del changes[name]
        for name in _FIXED:
            if name in changes and changes[name] != getattr(self._machine.config, name):
                raise LocalError(f"{name} stays as it was: datamarkers are kept by part")
        self._change(msgspec.structs.replace(self._node.changes, publisher=changes))
        return self.limits({})

    def move(self, asked: Mapping[str, Any]) -> object:
        """`application`, perhaps `shards`; then one of `to`, `position`, `company`, `caravan`, `release`."""
        served = self._served(str(asked.get("application", "")))
        shards = tuple(str(shard) for shard in asked.get("shards", ()))
        flows = self._flows(served, shards)
        if "to" in asked:
            return self._to(served, flows, shards, str(asked["to"]))
        if "position" in asked:
            return self._position(served, flows, shards, str(asked["position"]))
        members = [f"{served.name}/{shard}" for shard in shards] or [served.name]
        if "caravan" in asked:
            return self._caravan(members, int(asked["caravan"]))
        if "company" in asked:
            return self._together(members, str(asked["company"]))
        if asked.get("release"):
            return self._release(served, shards)
        raise LocalError("say where to: to a subscriber, to a position, into a company or a caravan, or back")

    def _to(self, served: Served, flows: list[Flow], shards: tuple[str, ...], to: str) -> object:
        link = served.links.get(Address(to))
        if link is None or not link.wants:
            there = _there("", [one.address for one in served.links.values() if one.wants])
            raise LocalError(f"{to!r} is no subscriber of {served.name!r} that takes shards now; {there}")
        going = [flow for flow in flows if flow.link is not link]
        away: dict[Link, None] = {
            one.link: None for one in going if one.link is not None and not one.link.open
        }
        self._node.tell(Give(served.name, to, shards))
        return {
            "flows": len(going),
            "to": to,
            "waits_for": sorted(one.address for one in away),
            "what": "each goes when its subscriber is done with what it has; nothing is sent twice",
        }

    def _position(self, served: Served, flows: list[Flow], shards: tuple[str, ...], text: str) -> object:
        try:
            position = Position.parse(text)
        except ValueError:
            raise LocalError(f"{text!r} is no position; write sequence:index, as 1042:0") from None
        begins = max((each.sequence for each in served.snapshots.values()), default=0)
        if shards and position.sequence < begins:
            raise LocalError(
                f"{served.name!r} begins with a snapshot, at {begins}: move all its shards to go back to"
                f" before that, then its rows are not sent again; or these to {begins}:0, to get their rows"
                " again"
            )
        self._node.tell(Move(served.name, position, shards))
        return {"flows": len(flows), "position": str(position)}

    def _caravan(self, members: list[str], number: int) -> object:
        """Into the company of that caravan; if the policy made it, everybody aboard is one from now on."""
        caravan = self._machine.caravans.all.get(number)
        if caravan is None:
            raise LocalError(
                f"there is no caravan {number}; {_there('', map(str, self._machine.caravans.all))}"
            )
        if caravan.company:
            return self._together(members, caravan.company)
        aboard: dict[Served, list[Flow]] = {}
        for one in caravan.travellers:
            mine = aboard.setdefault(one.served, [])
            if isinstance(one, Flow):
                mine.append(one)
        for served, some in aboard.items():
            whole = len(some) == len(served.flows)
            members = [
                *members,
                *([served.name] if whole else [f"{served.name}/{flow.shard}" for flow in some]),
            ]
        return self._together(members, f"caravan-{number}")

    def _together(self, members: list[str], company: str) -> object:
        companies = self._without(set(members))
        companies[company] = tuple(dict.fromkeys([*companies.get(company, ()), *members]))
        most = self._machine.config.caravans_max - 1
        if len(companies) > most:
            raise LocalError(
                f"{len(companies)} companies need {len(companies) + 1} readers, one for all the others;"
                f" allowed are {most + 1}: raise caravans_max, or release a company first"
            )
        self._companies(companies)
        return {"company": company, "members": list(companies[company])}

    def _release(self, served: Served, shards: tuple[str, ...]) -> object:
        now = self._node.settings.companies
        gone = {f"{served.name}/{shard}" for shard in shards}
        if not shards:
            mine = (served.name, f"{served.name}/")
            gone = {one for some in now.values() for one in some if one == mine[0] or one.startswith(mine[1])}
        companies = self._without(gone)
        if companies == now:
            raise LocalError("the policy decides on these already; nothing was overridden")
        self._companies(companies)
        return {"released": sorted(gone), "companies": companies}

    def _without(self, gone: set[str]) -> dict[str, tuple[str, ...]]:
        now = self._node.settings.companies
        left = {name: tuple(one for one in some if one not in gone) for name, some in now.items()}
        return {name: some for name, some in left.items() if some}

    def _companies(self, companies: dict[str, tuple[str, ...]]) -> None:
        said = self._node.said.companies
        changes: dict[str, tuple[str, ...] | None] = {
            name: some for name, some in companies.items() if said.get(name) != some
        }
        changes |= {name: None for name in said if name not in companies}
        self._change(msgspec.structs.replace(self._node.changes, companies=changes))

    # --- what they share ----------------------------------------------------------------------------

    def _change(self, changes: Changes) -> None:
        self._node.change(changes)

    def _served(self, name: str) -> Served:
        served = self._machine.served.get(name)
        if served is None:
            raise LocalError(f"there is no application {name!r}; {_there('', self._machine.served)}")
        return served

    def _flows(self, served: Served, shards: tuple[str, ...]) -> list[Flow]:
        unknown = [shard for shard in shards if shard not in served.flows]
        if unknown:
            raise LocalError(
                f"{served.name!r} has no shard {unknown[0]!r} here; `qanat flows --application {served.name}`"
                f" lists its {len(served.flows)}"
            )
        return [served.flows[shard] for shard in shards] if shards else list(served.flows.values())


def _given(kind: type[msgspec.Struct], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were named, as they fit; raises what is wrong with the first that does not."""
    found = load(kind, flags=[str(text) for text in asked.get("settings", ())])
    every: dict[str, Any] = msgspec.to_builtins(found.settings)
    return {name: every[name] for name in found.origins}


def _origin(in_file: bool, in_changes: bool) -> str:
    if in_changes:
        return "operator, over the file" if in_file else "operator"
    return "file"


def _there(of: str, names: Any) -> str:
    found = sorted(names)
    return f"there are {of}{' ' if of else ''}{', '.join(map(repr, found))}" if found else "there are none"
