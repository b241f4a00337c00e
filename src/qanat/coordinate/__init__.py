"""The coordinator: a small tree of versioned nodes, sessions and watches, in ZooKeeper's own vocabulary.

`tree` is the state, `server` the embedded back end (a machine, so it runs under both drivers), `session` what
another machine uses as a client. See docs/coordinator.md.
"""

from qanat.coordinate.interface import Answer, Coordinator, Listener, Problem, Then
from qanat.coordinate.messages import EventKind
from qanat.coordinate.server import CoordinatorServer, ServerConfig
from qanat.coordinate.session import Session, SessionConfig
from qanat.coordinate.tree import Tree

__all__ = [
    "Answer",
    "Coordinator",
    "CoordinatorServer",
    "EventKind",
    "Listener",
    "Problem",
    "ServerConfig",
    "Session",
    "SessionConfig",
    "Then",
    "Tree",
]
