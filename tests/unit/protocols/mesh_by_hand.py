"""A client of the mesh to be driven by hand, and what neighbours say to it."""

from tests.unit.protocols.contexts import ByKind

from qanat.events.batch import Batch
from qanat.kernel import Address, Message
from qanat.protocols.mesh import Events, MeshClient, MeshConfig, Notify
from qanat.protocols.views import ViewsConfig

ME, PROXY, A, B = (Address(name) for name in ("eu/me", "eu/proxy-1", "eu/a", "eu/b"))
STREAM, OTHER = 7, 8


class Outputs(ByKind):
    """Delivers only batches, and writes down their numbers."""

    def __init__(self, address: Address = ME) -> None:
        super().__init__(address)

    def deliver(self, item: object) -> None:
        assert isinstance(item, Batch)
        self.delivered.append((item.first, item.last))

    def take(self) -> list[tuple[Address, Message]]:
        sent, self.sent = self.sent, []
        return sent

    def notified(self) -> list[Address]:
        told = [to for to, message in self.casts if isinstance(message, Notify)]
        self.casts = []
        return told


def client(*, listens: bool = True, config: MeshConfig | None = None) -> tuple[MeshClient, Outputs]:
    context = Outputs()
    made = MeshClient(
        context,
        config or MeshConfig(neighbour_requests=2),
        ViewsConfig(),
        PROXY,
        {STREAM: 0},
        listens=listens,
    )
    made.on_start(0, ())
    return made, context


def batch(first: int, last: int, stream: int = STREAM) -> Batch:
    return Batch.build(stream, [b"x"] * (last - first + 1), first=first)


def notify(cnt: int, ask: bool = False) -> Notify:
    return Notify((STREAM,), (cnt,), ask)


def news(first: int, last: int, cnt: int = 0) -> Notify:
    """Of a member that has got these and, in order, everything up to `cnt`."""
    return Notify((STREAM,), (cnt,), False, ((STREAM, first, last),))


def events(nxt: int, upto: int, *batches: Batch, cnt: int = 0) -> Events:
    return Events(STREAM, nxt, upto, cnt, batches)
