"""Kinds of processes: what each runs, and what of a deployment's file it reads. `qanat node`, the nodes'
files, what a change restarts and `status` are made from this one table."""

from importlib import import_module
from typing import Any, NamedTuple

PROXY, COORDINATOR, PUBLISHER, LINKS = "proxy", "coordinator", "publisher", "links"


class Kind(NamedTuple):
    """`node` and `settings` are classes, as `module:name`: only what runs is imported."""

    node: str
    settings: str
    sections: tuple[str, ...] = ()
    """Of the deployment's file, that go into the process's own as they are."""

    def node_type(self) -> Any:
        return _named(self.node)

    def settings_type(self) -> Any:
        return _named(self.settings)


KINDS = {
    PROXY: Kind(
        "qanat.replica.node:ProxyNode",
        "qanat.replica.settings:ProxySettings",
        ("logging", "transport", "session", "zookeeper", "chain", "proxy_level", "mesh", "views"),
    ),
    COORDINATOR: Kind(
        "qanat.replica.coordinator:CoordinatorNode",
        "qanat.replica.settings:CoordinatorSettings",
        ("logging", "transport", "server", "raft"),
    ),
    PUBLISHER: Kind("qanat.publisher.node:PublisherNode", "qanat.publisher.settings:PublisherSettings"),
    LINKS: Kind("qanat.operate.links:LinksNode", "qanat.operate.links:LinksSettings", ("logging",)),
}
PASSED_ON = tuple(dict.fromkeys(section for kind in KINDS.values() for section in kind.sections))
"""Sections of a deployment's file that go into files of nodes."""


def readers(section: str) -> set[str]:
    """Kinds that read this section."""
    return {name for name, kind in KINDS.items() if section in kind.sections}


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
