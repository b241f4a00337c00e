"""What a client needs of the mesh, imported only once it is asked for: it costs a machine and a listener."""

from typing import TYPE_CHECKING

from qanat.client.subscription import Subscription, Where
from qanat.events import arguments
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient
    from qanat.client.mesh_member import MeshSettings


def by_mesh(
    client: "AsyncClient", via: str, stream: str, start: Where, where: str, window_bytes: int
) -> Subscription:
    """A subscription whose events come from other clients of the region; the client is a member from the
    first one on."""
    if via != "mesh":
        raise LocalError(f"via={via!r}: events come by way of the server or of the mesh")
    from qanat.client.mesh_member import MeshMember, MeshSettings
    from qanat.client.mesh_subscription import MeshSubscription

    if client.member is None:
        client.member = MeshMember(client._mesh or MeshSettings(), client._transport)
    return MeshSubscription(client, stream, start, where, window_bytes, client.member)


def mesh_settings(given: "MeshSettings") -> "MeshSettings":
    from qanat.client.mesh_member import MeshSettings

    return arguments.settings("mesh", given, MeshSettings)
