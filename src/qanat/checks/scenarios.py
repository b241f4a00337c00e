"""Every protocol that a scenario file can name; to add one, write its kit and list it here."""

from pathlib import Path

from qanat.checks import (
    chain,
    coordinator,
    mesh,
    meshes,
    proxy_level,
    publisher,
    push_sum,
    raft,
    region,
    views,
)
from qanat.sim import ProtocolKit, Scenario, load

KITS: dict[str, ProtocolKit] = {
    kit.name: kit
    for kit in (
        push_sum.KIT,
        chain.KIT,
        raft.KIT,
        coordinator.KIT,
        proxy_level.KIT,
        region.KIT,
        views.KIT,
        mesh.KIT,
        meshes.KIT,
        publisher.KIT,
    )
}


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file of any protocol we have."""
    return load(Path(path), KITS)
