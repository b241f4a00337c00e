"""The ways by which a subscription's events may come, a row each. A way is imported once it is asked for: the
mesh costs a machine and a listener."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from qanat.client.subscription import Subscription, Where
from qanat.events import arguments
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient
    from qanat.client.mesh_member import MeshSettings

Via: TypeAlias = Literal["server", "mesh"]
"""By which way a subscription's events come."""


class Asked(NamedTuple):
    """What is subscribed to."""

    client: "AsyncClient"
    stream: str
    start: Where
    where: str
    alive: bool


def _by_server(asked: Asked) -> Subscription:
    """Events come from the tail of the region's chain."""
    client, stream, start, where, alive = asked
    settings = client.settings
    size = settings.subscription_bytes
    return Subscription(client, stream, start, where, size, in_place=settings.in_place, alive=alive)


def _by_mesh(asked: Asked) -> Subscription:
    """Events come from other clients of the region; the client is a member from the first one on."""
    from qanat.client.mesh_member import MeshMember, MeshSettings
    from qanat.client.mesh_subscription import MeshSubscription

    client, stream, start, where, _ = asked
    if client.member is None:
        client.member = MeshMember(client._mesh or MeshSettings(), client._transport)
    size = client.settings.subscription_bytes
    return MeshSubscription(client, stream, start, where, size, client.member)


class Way(NamedTuple):
    subscribe: Callable[[Asked], Subscription]
    has_alive: bool
    """Whether events that are dead already can be left out by this way."""


WAYS: dict[str, Way] = {"server": Way(_by_server, True), "mesh": Way(_by_mesh, False)}


def subscribed(via: str, asked: Asked) -> Subscription:
    way = WAYS.get(via) if isinstance(via, str) else None
    if way is None:
        raise LocalError(f"via={via!r}: events come by way of the server or of the mesh")
    if asked.alive and (asked.client._record is not None or not way.has_alive):
        raise LocalError(
            "alive=True leaves events out: it goes with the server's own way, and without a record"
        )
    return way.subscribe(asked)


def mesh_settings(given: "MeshSettings") -> "MeshSettings":
    from qanat.client.mesh_member import MeshSettings

    return arguments.settings("mesh", given, MeshSettings)
