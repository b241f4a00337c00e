"""A publisher and its subscribers, driven by hand: what a test sends to it, and what comes out."""

from __future__ import annotations

from typing import Any, TypeVar

from tests.unit.protocols.contexts import InOrder

from qanat.checks.publisher_log import Row, batch_of, positions_in
from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.flows import Caravan
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.messages import Alive, Handled, Join, Updates, Welcome
from qanat.protocols.publisher.reading import ReadLog, WasLost, WasRead

NOW = 1_700_000_000_000_000
T = TypeVar("T")


def row(
    sequence: int, shard: str | None = "a", index: int = 0, colour: str = "red", time_us: int = NOW
) -> Row:
    return Row(Position(sequence, index), shard, colour, time_us)


class Desk:
    """Timers fire when a test says so; the journal is what was persisted."""

    def __init__(
        self,
        config: PublisherConfig | None = None,
        saved: list[bytes] | None = None,
        **applications: ApplicationConfig,
    ) -> None:
        self.context = InOrder(Address("publisher"))
        self.machine = Publisher(
            self.context,
            config or PublisherConfig(),
            applications or {"cache": ApplicationConfig(start="0:0")},
        )
        self.machine.on_start(NOW, saved or [])
        self.sessions: dict[str, int] = {}
        self.read_by: dict[int, Position] = {}

    @property
    def journal(self) -> list[bytes]:
        return [output[1] for output in self.context.outputs if output[0] == "persist"]

    def join(
        self, name: str, application: str = "cache", life: int = 1, attempt: int = 0, **more: Any
    ) -> int:
        window = more.get("window", 1 << 20)
        message = Join(application, life, attempt, more.get("weight", 1.0), window, more.get("busy", False))
        self.machine.on_message(NOW, Address(name), message)
        welcome = self.last(name, Welcome)
        self.sessions[name] = welcome.session
        return welcome.session

    def say(self, name: str, kind: Any, *values: Any) -> None:
        """A message of the session that this subscriber has."""
        self.machine.on_message(NOW, Address(name), kind(self.sessions[name], *values))

    def alive(self, name: str, number: int = 1) -> None:
        self.say(name, Alive, number)

    def handle_all(self, name: str) -> None:
        self.say(name, Handled, self.machine.links[Address(name)].number)

    def timer(self, name: str, now_us: int = NOW) -> None:
        self.machine.on_timer(now_us, name)

    def settle(self) -> None:
        """Shards are given out, flows get on."""
        self.timer("assign")
        self.timer("plan/soon")

    def read(self, *rows: Row, upto: Position | None = None, now_us: int = NOW) -> None:
        """The answer to the read that is under way, of the caravan that is last."""
        caravan = self.rear()
        assert caravan.reading is not None
        batch = batch_of(rows) if rows else None
        self.machine.on_request(
            now_us,
            WasRead(
                caravan.number, caravan.reading, upto or (rows[-1].position if rows else caravan.at), batch
            ),
        )

    def lose(self, upto: Position) -> None:
        caravan = self.rear()
        assert caravan.reading is not None
        self.machine.on_request(NOW, WasLost(caravan.number, caravan.reading, upto, "gone"))

    def rear(self) -> Caravan:
        return min(self.machine.caravans.all.values(), key=lambda caravan: caravan.at)

    def only_caravan(self) -> Caravan:
        (caravan,) = self.machine.caravans.all.values()
        return caravan

    def asked(self) -> list[ReadLog]:
        """Reads asked for since the last time."""
        return [item for item in self.context.take("deliver") if isinstance(item, ReadLog)]

    def sent(self, name: str, kind: type[T]) -> list[T]:
        return [
            out[2]
            for out in self.context.outputs
            if out[0] == "send" and out[1] == name and isinstance(out[2], kind)
        ]

    def last(self, name: str, kind: type[T]) -> T:
        return self.sent(name, kind)[-1]

    def got(self, name: str) -> list[str]:
        """Positions of all updates that were sent to it."""
        return [
            str(position)
            for item in self.sent(name, Updates)
            for batch in item.batches
            for position in positions_in(batch)
        ]
