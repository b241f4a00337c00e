"""Which processes a deployment consists of, which ports they need, and the configuration file of each."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from qanat.operate.file import Deployment, by_default, changed
from qanat.operate.kinds import COORDINATOR, KINDS, LINKS, PROXY
from qanat.operate.toml_writer import to_toml

HOST = "127.0.0.1"


def coordinator(region: str) -> str:
    """Its name; of an ensemble, what the names of its members begin with."""
    return f"{region}/coordinator"


def coordinators(deployment: Deployment, region: str) -> list[str]:
    spec = deployment.regions[region]
    if spec.coordinator:
        return []
    if (spec.coordinators or by_default(spec)) == 1:
        return [coordinator(region)]
    return [f"{coordinator(region)}-{number}" for number in (1, 2, 3)]


def replicas(deployment: Deployment, region: str) -> list[str]:
    return [f"{region}/proxy-{number + 1}" for number in range(deployment.regions[region].replicas)]


def region_of(node: str) -> str:
    return node.partition("/")[0]


def nodes(deployment: Deployment) -> dict[str, str]:
    """Every process by name, with its kind, in the order in which they are best started."""
    found = {LINKS: LINKS} if deployment.drills and len(deployment.regions) > 1 else {}
    found |= {name: COORDINATOR for region in deployment.regions for name in coordinators(deployment, region)}
    found |= {replica: PROXY for region in deployment.regions for replica in replicas(deployment, region)}
    return found


def link_name(dialling: str, replica: str) -> str:
    return f"{dialling}>{replica}"


def link_ends(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """(dialling region, remote replica): each has a port of its own in the process of links."""
    if LINKS in nodes(deployment):
        for dialling in deployment.regions:
            for remote in deployment.regions:
                if remote != dialling:
                    yield from ((dialling, replica) for replica in replicas(deployment, remote))


def ports_needed(deployment: Deployment) -> list[str]:
    """Names under which ports are remembered: a node, a node's HTTP, a link."""
    found: list[str] = []
    for node in nodes(deployment):
        found += [node, admin(node)] if node != LINKS else [admin(node)]
    return found + [link_name(*ends) for ends in link_ends(deployment)]


def admin(node: str) -> str:
    return f"{node} http"


def file_name(node: str) -> str:
    """A node's name as part of a path."""
    return node.replace("/", "~")


def url(port: int) -> str:
    return f"qanat://{HOST}:{port}"


def region_url(deployment: Deployment, region: str, ports: Mapping[str, int]) -> str:
    """Where clients of a region connect: any of its replicas will do to find the others."""
    return "qanat://" + ",".join(f"{HOST}:{ports[replica]}" for replica in replicas(deployment, region))


def node_files(deployment: Deployment, ports: Mapping[str, int], folder: Path) -> dict[str, str]:
    """The text of each node's configuration file, by the node's name; their data lie below `folder`."""
    return {
        node: to_toml(_tree(deployment, node, kind, ports, folder))
        for node, kind in nodes(deployment).items()
    }


def _tree(
    deployment: Deployment, node: str, kind: str, ports: Mapping[str, int], folder: Path
) -> dict[str, object]:
    passed = changed(deployment)
    tree: dict[str, object] = {
        "node": {
            "name": node,
            "listen": f"{HOST}:{ports.get(node, 0)}",
            "data": str(folder / "data" / file_name(node)),
        },
        "admin": {"host": HOST, "port": ports[admin(node)]},
    }
    tree |= {section: passed[section] for section in KINDS[kind].sections if section in passed}
    if kind == PROXY:
        region = region_of(node)
        tree["region"] = {"name": region, "replicas": deployment.regions[region].replicas}
        elsewhere, members = deployment.regions[region].coordinator, coordinators(deployment, region)
        here = "qanat://" + ",".join(f"{HOST}:{ports[name]}" for name in members)
        tree["coordinator"] = {"name": coordinator(region), "url": elsewhere or here}
        tree["peers"] = _peers(deployment, node, ports)
        tree["streams"] = {name: changed(stream) for name, stream in deployment.streams.items()}
    if kind == COORDINATOR:
        members = coordinators(deployment, region_of(node))
        if len(members) > 1:
            tree["peers"] = {name: {"url": url(ports[name])} for name in members if name != node}
    if kind == LINKS:
        tree["cuts"] = str(folder / "cuts.json")
        tree["links"] = {
            link_name(dialling, replica): {
                "dialling": dialling,
                "remote": region_of(replica),
                "listen": f"{HOST}:{ports[link_name(dialling, replica)]}",
                "target": f"{HOST}:{ports[replica]}",
            }
            for dialling, replica in link_ends(deployment)
        }
    return tree


def _peers(deployment: Deployment, node: str, ports: Mapping[str, int]) -> dict[str, object]:
    region = region_of(node)
    peers: dict[str, object] = {}
    for other in deployment.regions:
        for replica in replicas(deployment, other):
            if replica == node:
                continue
            through = link_name(region, replica)
            peer = {
                "url": url(ports.get(through, 0) if _linked(deployment, region, other) else ports[replica])
            }
            codec = deployment.compression(region, other)
            peers[replica] = peer | ({"compression": codec} if codec else {})
    return peers


def _linked(deployment: Deployment, a: str, b: str) -> bool:
    return deployment.drills and a != b
