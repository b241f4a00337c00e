"""How a whole deployment is doing: the supervisor's word and each node's own, asked at once and put
together."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from qanat.operate.control import call
from qanat.operate.home import Home
from qanat.operate.kinds import LINKS, PROXY
from qanat.operate.layout import HOST, region_of, url
from qanat.runtime.loop import run

_ANSWER_S = 2.0

Status = dict[str, Any]


class Chain(NamedTuple):
    """A region's chain, as the replica tells it that knows the latest epoch."""

    epoch: int = 0
    replicas: tuple[str, ...] = ()
    joining: str = ""
    serves: bool = False
    """Whether its head says that it answers publishers, and its tail that it may show events, of one
    epoch."""
    waits: str = ""
    """What it waits for, as one of its replicas says."""
    lacks: str = ""
    """Of head and tail, who does not do what it is there for."""

    @property
    def head(self) -> str:
        return self.replicas[0] if self.replicas else ""

    @property
    def tail(self) -> str:
        return self.replicas[-1] if self.replicas else ""


class Overview(NamedTuple):
    """`supervisor` is its own status; `nodes` what each node shows at /status, nothing for one that does not
    answer."""

    supervisor: Status
    nodes: dict[str, Status]

    # ------------------------------------------------------------------ parts

    def regions(self) -> dict[str, list[str]]:
        """The replicas that each region should have."""
        found: dict[str, list[str]] = {}
        for name, node in self.supervisor["nodes"].items():
            if node["kind"] == PROXY:
                found.setdefault(region_of(name), []).append(name)
        return found

    def urls(self) -> dict[str, str]:
        """Where clients of each region connect: any of its replicas will do to find the others."""
        ports = {name: node["port"] for name, node in self.supervisor["nodes"].items()}
        return {
            region: "qanat://" + ",".join(url(ports[replica]).partition("://")[2] for replica in replicas)
            for region, replicas in self.regions().items()
        }

    def chain(self, region: str) -> Chain:
        told = [self.nodes.get(replica, {}).get("chain") for replica in self.regions()[region]]
        chains = [each for each in told if each]
        if not chains:
            return Chain()
        latest = max(chains, key=lambda each: int(each["epoch"]))
        names = tuple(latest["replicas"])
        waits = next((each["waits"] for each in chains if each.get("waits")), "")
        lacks = ""
        if names and not self._does(names[0], "answers", latest["epoch"]):
            lacks = f"its head, {names[0]}, does not answer publishers yet"
        elif names and not self._does(names[-1], "serves", latest["epoch"]):
            lacks = f"its tail, {names[-1]}, does not serve yet"
        serves = bool(names) and not lacks
        return Chain(latest["epoch"], names, latest.get("joining") or "", serves, waits, lacks)

    def _does(self, name: str, what: str, epoch: int) -> bool:
        said = self.nodes.get(name, {}).get("chain") or {}
        return bool(said.get(what)) and said["epoch"] == epoch

    def chains(self) -> dict[str, tuple[str, ...]]:
        """Who is in the chain of each region; nobody where no replica answers."""
        return {region: self.chain(region).replicas for region in self.regions()}

    def links(self) -> dict[tuple[str, str], Status]:
        """Every two regions of a deployment with drills: whether the link is up, and what passed."""
        found: dict[tuple[str, str], Status] = {}
        cuts = {(a, b) for a, b in self.supervisor["cuts"]}
        for link in self.nodes.get(LINKS, {}).get("links", {}).values():
            a, b = sorted((link["from"], link["to"]))
            ways = [way for way in ((a, b), (b, a)) if way in cuts]
            state = (
                "up" if not ways else "cut" if len(ways) == 2 else f"cut from {ways[0][0]} to {ways[0][1]}"
            )
            entry = found.setdefault((a, b), {"state": state, "connections": 0, "forwarded_bytes": 0})
            entry["connections"] += link["connections"]
            entry["forwarded_bytes"] += link["forwarded_bytes"]
        return found

    def streams(self) -> dict[str, Status]:
        """Every stream: its owner, and how it stands in each region (as its tail, and for the source its
        head, says)."""
        found: dict[str, Status] = {}
        for region in self.regions():
            chain = self.chain(region)
            sources = {each["stream"]: each.get("source") for each in self._streams(chain.head)}
            for each in self._streams(chain.tail):
                entry = found.setdefault(
                    each["stream"], {"owner": each["owner"], "durability": each["durability"], "regions": {}}
                )
                source = sources.get(each["stream"]) or ""
                entry["regions"][region] = {
                    "last": int(each["next"]) - 1,
                    "stable": each["stable"],
                    "source": source,
                    "subscribers": each["subscribers"],
                    "largest_lag": each["largest_lag"],
                    "mesh": each["mesh"],
                }
        for entry in found.values():
            newest = max(here["stable"] for here in entry["regions"].values())
            for here in entry["regions"].values():
                here["behind"] = newest - here["stable"]
        return dict(sorted(found.items()))

    def _streams(self, node: str) -> list[Status]:
        return list(self.nodes.get(node, {}).get("streams") or [])

    # ------------------------------------------------------------------ judgement

    def missing(self, *, but_held: bool = False) -> list[str]:
        """What keeps the deployment from being whole, as sentences; nothing if every region serves. With
        `but_held` also nothing of what follows from nodes that stay away because somebody said so."""
        held = self.held() if but_held else frozenset[str]()
        nodes, chains = self._missing_nodes(held), self._missing_chains(held)
        return [
            *nodes,
            *self._full_disks(),
            *self._missing_ensembles(held),
            *chains,
            *self._missing_links(),
        ]

    def held(self) -> frozenset[str]:
        return frozenset(name for name, node in self.supervisor["nodes"].items() if node["state"] == "held")

    def _missing_nodes(self, held: frozenset[str]) -> Iterator[str]:
        for name, node in self.supervisor["nodes"].items():
            if name in held:
                continue
            if node["state"] != "running":
                after = f" after {node['last_end']}" if node["last_end"] else ""
                yield f"{_called(name)} is {node['state']}{after}"
            elif name not in self.nodes:
                yield f"{_called(name)} does not answer yet"

    def _full_disks(self) -> Iterator[str]:
        yield from (said["disk_full"] for said in self.nodes.values() if said.get("disk_full"))

    def ensembles(self) -> dict[str, dict[str, Status]]:
        """What the coordinators of each region that has three say of themselves."""
        found: dict[str, dict[str, Status]] = {}
        for name, said in self.nodes.items():
            if said.get("ensemble"):
                found.setdefault(region_of(name), {})[name] = said["ensemble"]
        return found

    def _missing_ensembles(self, held: frozenset[str]) -> Iterator[str]:
        """One that is away is told as a node; here is what the others say of it, and what they wait for."""
        for region, members in self.ensembles().items():
            if not any(said["role"] == "leader" for said in members.values()):
                why = next((said["waits"] for said in members.values() if said["waits"]), "")
                yield f"the coordinators of {region} have no leader{': ' if why else ' yet'}{why}"
            for name, said in members.items():
                if not said["whole"] and name not in held:
                    yield (
                        f"{name} came without a journal, and does not count until the others have brought it"
                        " up to date"
                    )

    def _missing_chains(self, held: frozenset[str]) -> Iterator[str]:
        for region, replicas in self.regions().items():
            chain = self.chain(region)
            if held.issuperset(replicas):
                continue
            if chain.waits:
                yield chain.waits
            elif len(chain.replicas) < len([replica for replica in replicas if replica not in held]):
                joining = f", {chain.joining} joins" if chain.joining else ""
                shown = " → ".join(chain.replicas) or "none yet"
                yield f"the chain of {region} is {shown} ({len(chain.replicas)} of {len(replicas)}{joining})"
            elif not chain.serves:
                yield f"the chain of {region} does not serve: {chain.lacks}"

    def _missing_links(self) -> Iterator[str]:
        for (a, b), link in self.links().items():
            if link["state"] == "up" and not link["connections"]:
                yield f"the link {a} – {b} has no connection yet"

    def damage(self) -> list[str]:
        """What replicas found to be damaged on their disks, and what they set aside for it, as sentences."""
        found = []
        for name, said in self.nodes.items():
            if said.get("damaged"):
                found.append(f"{name}: {said['damaged']}")
            found += [f"{name}: {repair}" for repair in said.get("repaired") or ()]
            found += [f"{name}: {each}" for each in said.get("short") or ()]
            for aside in said.get("set_aside") or ():
                found.append(
                    f"{name} began anew: {aside['why']}; what it held lies in {aside['folder']} until you"
                    " remove it"
                )
        return found

    def as_json(self) -> Status:
        """All of it as one tree."""
        return {
            **{key: self.supervisor[key] for key in ("name", "folder", "pid", "uptime_s", "drills", "cuts")},
            "missing": self.missing(),
            "damage": self.damage(),
            "regions": {
                region: {"url": address, **self.chain(region)._asdict()}
                for region, address in self.urls().items()
            },
            "ensembles": self.ensembles(),
            "streams": self.streams(),
            "links": [{"between": list(ends), **link} for ends, link in self.links().items()],
            "nodes": {
                name: {**node, "status": self.nodes.get(name)}
                for name, node in self.supervisor["nodes"].items()
            },
        }


def look(home: Home) -> Overview:
    """One look at everything; a node that does not answer within two seconds is shown as silent."""
    supervisor = call(home, "status")
    return run(lambda: see(supervisor))


async def see(supervisor: Status) -> Overview:
    """The same for who knows already what the supervisor says."""
    running = {name: node["http"] for name, node in supervisor["nodes"].items() if node["state"] == "running"}
    answers = await asyncio.gather(*(_ask(port) for port in running.values()))
    return Overview(supervisor, {name: said for name, said in zip(running, answers, strict=True) if said})


async def _ask(port: int) -> Status | None:
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(b"GET /status HTTP/1.1\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        return None
    try:
        said = json.loads(body)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _called(node: str) -> str:
    """A node's name as a stranger understands it."""
    return f"{LINKS}, the process between the regions," if node == LINKS else node
