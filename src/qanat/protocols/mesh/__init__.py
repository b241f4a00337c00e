"""Dissemination inside a region: NOTIFY, REQUEST, EVENTS over a shuffled mesh (Sprinkler, section 3.2).

See docs/region-mesh.md.
"""

from qanat.protocols.mesh.client import MeshClient
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.messages import Attach, Events, Notify, Request
from qanat.protocols.mesh.proxy import MeshProxy
from qanat.protocols.mesh.requests import Arrived, Subscribe, Unsubscribe

__all__ = [
    "Arrived",
    "Attach",
    "Events",
    "MeshClient",
    "MeshConfig",
    "MeshProxy",
    "Notify",
    "Request",
    "Subscribe",
    "Unsubscribe",
]
