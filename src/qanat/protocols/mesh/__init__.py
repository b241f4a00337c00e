"""Dissemination inside a region: NOTIFY, REQUEST, EVENTS over a shuffled mesh (Sprinkler, section 3.2).

See docs/region-mesh.md.
"""

from qanat.protocols.mesh.client import MeshClient
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.meshes import ClientMeshes, ProxyMeshes
from qanat.protocols.mesh.messages import Attach, Events, InMesh, Notify, Request
from qanat.protocols.mesh.proxy import MeshProxy
from qanat.protocols.mesh.requests import Arrived, Serve, Subscribe, Unsubscribe
from qanat.protocols.mesh.shown import Shown, ShownStreams

__all__ = [
    "Arrived",
    "Attach",
    "ClientMeshes",
    "Events",
    "InMesh",
    "MeshClient",
    "MeshConfig",
    "MeshProxy",
    "Notify",
    "ProxyMeshes",
    "Request",
    "Serve",
    "Shown",
    "ShownStreams",
    "Subscribe",
    "Unsubscribe",
]
