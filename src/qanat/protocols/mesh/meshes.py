"""Several meshes at one node, one for each stream.

The mesh of the paper assumes that everyone in it wants every stream: a neighbour that does not want what I
want has nothing for me. Where clients choose their streams, each stream has its own mesh, of those who want
it; this machine takes part in any number of them, over the same channels.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar, assert_never

import msgspec

from qanat.events.batch import Batch
from qanat.events.compact import compact
from qanat.kernel import Address, Context, Machine, Message
from qanat.protocols.history import Synced
from qanat.protocols.mesh.client import MeshClient
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.messages import Events, InMesh, Request
from qanat.protocols.mesh.node import MeshNode
from qanat.protocols.mesh.proxy import MeshProxy
from qanat.protocols.mesh.requests import Arrived, Serve, Subscribe, Unsubscribe
from qanat.protocols.mesh.shown import ShownStreams
from qanat.protocols.views import Leave, UseProxy, ViewsConfig

ClientMeshesRequest: TypeAlias = Subscribe | Unsubscribe | UseProxy | Leave
ProxyMeshesRequest: TypeAlias = Arrived | Synced | Serve
SWEEP = "sweep"
SWEEP_US = 30_000_000
"""Between two looks for meshes without members, or of streams that are gone: rather longer than a member is
remembered (20 s)."""
N = TypeVar("N", bound=MeshNode[Any])
R = TypeVar("R")


class OneMesh:
    """The context of one mesh: the node's, with its messages marked and its timers kept apart."""

    def __init__(self, context: Context, stream: int) -> None:
        self.address, self.rng = context.address, context.rng
        self.persist, self.deliver, self.trace = context.persist, context.deliver, context.trace
        self.wall_us, self.when_persisted = context.wall_us, context.when_persisted
        self._context = context
        self._stream = stream
        self._timers: dict[str, None] = {}

    def send(self, to: Address, message: Message) -> None:
        self._context.send(to, self._mark(message))

    def cast(self, to: Address, message: Message) -> None:
        self._context.cast(to, self._mark(message))

    def set_timer(self, name: str, after_us: int) -> None:
        self._timers[name] = None
        self._context.set_timer(f"{name} {self._stream}", after_us)

    def cancel_timer(self, name: str) -> None:
        self._timers.pop(name, None)
        self._context.cancel_timer(f"{name} {self._stream}")

    def _mark(self, message: Message) -> InMesh:
        if not isinstance(message, MeshNode.message_types):
            raise TypeError(f"a mesh does not send {type(message).__name__}")
        return InMesh(self._stream, message)

    def close(self) -> None:
        for name in list(self._timers):
            self.cancel_timer(name)


class Meshes(Machine[InMesh, R], Generic[N, R]):
    """What clients and proxies have in common; `meshes` is for readers."""

    message_types = (InMesh,)
    delivers = (Batch,)

    def __init__(self, context: Context, config: MeshConfig, views: ViewsConfig) -> None:
        super().__init__(context)
        self.config = config
        self.views = views
        self.meshes: dict[int, N] = {}

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        """There are no meshes yet."""

    def on_message(self, now_us: int, sender: Address, message: InMesh) -> None:
        mesh = self.meshes.get(message.stream) or self.mesh_for(now_us, message.stream)
        if mesh is not None:
            mesh.on_message(now_us, sender, message.message)
        elif isinstance(message.message, Request):
            # An answer about nothing: whoever asks goes elsewhere at once, instead of waiting for us.
            nothing = Events(message.stream, message.message.nxt, message.message.nxt - 1, 0, ())
            self.context.send(sender, InMesh(message.stream, nothing))

    def on_timer(self, now_us: int, name: str) -> None:
        kind, _, stream = name.partition(" ")
        mesh = self.meshes.get(int(stream))
        if mesh is not None:
            mesh.on_timer(now_us, kind)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        for mesh in list(self.meshes.values()):
            mesh.on_link_down(now_us, peer)

    def mesh_for(self, now_us: int, stream: int) -> N | None:
        """Whether a message for a mesh in which we are not makes us enter it."""
        return None

    def enter(self, now_us: int, stream: int, mesh: N) -> N:
        self.meshes[stream] = mesh
        mesh.on_start(now_us, ())
        return mesh

    def leave(self, stream: int) -> None:
        """Nobody is told: whoever no longer speaks is forgotten."""
        mesh = self.meshes.pop(stream, None)
        if mesh is not None and isinstance(mesh.context, OneMesh):
            mesh.context.close()

    def within(self, stream: int) -> Context:
        return OneMesh(self.context, stream)


class ClientMeshes(Meshes[MeshClient, ClientMeshesRequest]):
    """A client in the mesh of each stream that it subscribed to."""

    def __init__(
        self,
        context: Context,
        config: MeshConfig,
        views: ViewsConfig,
        proxy: Address,
        *,
        listens: bool = True,
    ) -> None:
        super().__init__(context, config, views)
        self.proxy = proxy
        self.listens = listens

    def on_message(self, now_us: int, sender: Address, message: InMesh) -> None:
        """Events are kept for neighbours: they must not keep the receive buffers that they came in."""
        said = message.message
        if isinstance(said, Events) and said.batches:
            kept = msgspec.structs.replace(said, batches=tuple(map(compact, said.batches)))
            message = InMesh(message.stream, kept)
        super().on_message(now_us, sender, message)

    def on_request(self, now_us: int, request: ClientMeshesRequest) -> None:
        match request:
            case Subscribe(stream, after):
                if stream not in self.meshes:
                    mesh = MeshClient(
                        self.within(stream),
                        self.config,
                        self.views,
                        self.proxy,
                        {stream: after},
                        listens=self.listens,
                    )
                    self.enter(now_us, stream, mesh)
            case Unsubscribe(stream):
                self.leave(stream)
            case UseProxy(address):
                self.proxy = address
                for mesh in self.meshes.values():
                    mesh.on_request(now_us, request)
            case Leave():
                for stream in list(self.meshes):
                    self.leave(stream)
            case _:
                assert_never(request)


class ProxyMeshes(Meshes[MeshProxy, ProxyMeshesRequest]):
    """A proxy in the mesh of each stream that a client wants; or, while it does not serve, in none.

    A chain's replica is one that serves while it is the tail. Of a request to another it says at once that it
    has nothing, and the client asks again until it has learnt who serves.
    """

    def __init__(
        self,
        context: Context,
        config: MeshConfig,
        views: ViewsConfig,
        history: ShownStreams,
        *,
        serves: bool = True,
    ) -> None:
        super().__init__(context, config, views)
        self.history = history
        self.serves = serves

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.context.set_timer(SWEEP, SWEEP_US)

    def on_request(self, now_us: int, request: ProxyMeshesRequest) -> None:
        match request:
            case Arrived(stream) | Synced(stream):
                mesh = self.meshes.get(stream)
                if mesh is not None:
                    mesh.on_request(now_us, Arrived(stream))
            case Serve(serves):
                self.serves = serves
                if not serves:
                    for stream in list(self.meshes):
                        self.leave(stream)
            case _:
                assert_never(request)

    def mesh_for(self, now_us: int, stream: int) -> MeshProxy | None:
        if not self.serves or not self.history.holds(stream):
            return None
        mesh = MeshProxy(self.within(stream), self.config, self.views, self.history)
        self.enter(now_us, stream, mesh)
        mesh.on_request(now_us, Arrived(stream))
        return mesh

    def on_timer(self, now_us: int, name: str) -> None:
        if name != SWEEP:
            super().on_timer(now_us, name)
            return
        self.context.set_timer(SWEEP, SWEEP_US)
        for stream, mesh in list(self.meshes.items()):
            empty = not mesh.membership.view and not mesh.notifier.attached
            if empty or not self.history.holds(stream):
                self.leave(stream)
