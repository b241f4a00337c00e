"""A server's side of the mesh: its streams, shown to members as far as its subscribers may see them.

To plug it in: `part = MeshPart(find, mesh, views)`, `part.add_to(driver)` before the driver starts (its book
must know
members: `Heard`), and at a replica `part.serve(...)` whenever it becomes the tail or ceases to be.
"""

from collections.abc import Callable, Mapping

from qanat.events.batch import Batch
from qanat.kernel import Context
from qanat.log.errors import CorruptLog
from qanat.log.reader import Truncated
from qanat.protocols.history import HistoryTruncated
from qanat.protocols.mesh import Arrived, MeshConfig, MeshProxy, ProxyMeshes, Serve
from qanat.protocols.views import ViewsConfig
from qanat.runtime.driver import Driver
from qanat.runtime.members import MESH_CHANNEL
from qanat.runtime.metrics import Metrics
from qanat.serving.delivery import Delivery

MESH = "mesh"
"""The machine's name."""
Find = Callable[[int], Delivery | None]
"""The stream of a number, if there is one here."""


class DeliveredStreams:
    """`ShownStreams` over what a server delivers to its subscribers."""

    def __init__(self, find: Find) -> None:
        self._find = find

    def holds(self, stream: int) -> bool:
        return self._find(stream) is not None

    def durable(self, stream: int) -> int:
        found = self._find(stream)
        return 0 if found is None else found.readable

    def read(self, stream: int, start: int, max_bytes: int, upto: int | None = None) -> list[Batch]:
        found = self._find(stream)
        if found is None:
            return []
        limit = found.readable if upto is None else min(upto, found.readable)
        try:
            chunk = found.log.read(start, max_bytes, upto=limit)
        except CorruptLog as error:
            found.damaged(error)
            raise
        if isinstance(chunk, Truncated):
            raise HistoryTruncated(stream, chunk.first, chunk.last)
        return [batch for batch in chunk.batches() if batch.last <= limit]


class ServedMeshes(ProxyMeshes):
    """Hears of a stream's progress while it has a mesh, so that streams without one cost nothing."""

    def __init__(
        self,
        context: Context,
        mesh: MeshConfig,
        views: ViewsConfig,
        find: Find,
        arrived: Callable[[int], None],
        *,
        serves: bool,
    ) -> None:
        super().__init__(context, mesh, views, DeliveredStreams(find), serves=serves)
        self._find = find
        self._arrived = arrived

    def enter(self, now_us: int, stream: int, mesh: MeshProxy) -> MeshProxy:
        found = self._find(stream)
        if found is not None:
            found.on_readable = lambda: self._arrived(stream)
        return super().enter(now_us, stream, mesh)

    def leave(self, stream: int) -> None:
        found = self._find(stream)
        if found is not None:
            found.on_readable = None
        super().leave(stream)


class MeshPart:
    """The mesh of a node that has a driver."""

    def __init__(self, find: Find, mesh: MeshConfig, views: ViewsConfig, *, serves: bool = True) -> None:
        self._find, self._mesh, self._views = find, mesh, views
        self._serves = serves
        self._driver: Driver | None = None
        self._machine: ServedMeshes | None = None

    def add_to(self, driver: Driver) -> None:
        self._driver = driver
        driver.add(MESH_CHANNEL, MESH, self._make, again=True)

    def serve(self, serves: bool) -> None:
        """Whether this node is the one whose events clients may see; cheap to say again."""
        if serves != self._serves:
            self._serves = serves
            if self._driver is not None:
                self._driver.tell(MESH_CHANNEL, Serve(serves))

    def _make(self, context: Context) -> ServedMeshes:
        self._machine = ServedMeshes(
            context, self._mesh, self._views, self._find, self._arrived, serves=self._serves
        )
        return self._machine

    def _arrived(self, stream: int) -> None:
        if self._driver is not None:
            self._driver.tell(MESH_CHANNEL, Arrived(stream))

    # --- what people are told -----------------------------------------------------------------------

    @property
    def meshes(self) -> Mapping[int, MeshProxy]:
        return {} if self._machine is None else self._machine.meshes

    def status(self, stream: int) -> dict[str, object]:
        """Of one stream: the members that the proxy knows, and the visitors that it tells."""
        mesh = self.meshes.get(stream)
        if mesh is None:
            return {"members": [], "visitors": 0}
        return {"members": sorted(mesh.membership.view), "visitors": len(mesh.notifier.attached)}

    def export(self, metrics: Metrics, name_of: Callable[[int], str]) -> None:
        """Exports the sizes of the views and the numbers of visitors at /metrics."""

        def of_each(read: Callable[[MeshProxy], int]) -> Callable[[], list[tuple[tuple[str, ...], float]]]:
            return lambda: [
                ((name_of(stream),), float(read(mesh)))
                for stream, mesh in self.meshes.items()
                if self._find(stream) is not None
            ]

        metrics.gauge_of(
            "mesh_view_members",
            "Members of the stream's mesh that the proxy knows.",
            ("stream",),
            of_each(lambda mesh: len(mesh.membership.view)),
        )
        metrics.gauge_of(
            "mesh_visitors",
            "Clients that accept no connections; the proxy notifies them on their channel.",
            ("stream",),
            of_each(lambda mesh: len(mesh.notifier.attached)),
        )
