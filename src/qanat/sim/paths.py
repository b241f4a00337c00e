"""The state of the network between two nodes: transmitters, directed paths, channels, and what ails them."""

from collections import deque
from typing import TYPE_CHECKING

from qanat.kernel import Message
from qanat.sim.links import LinkSpec
from qanat.sim.units import MS

if TYPE_CHECKING:
    from qanat.sim.node import SimNode


class Pipe:
    """A transmitter: sends one message after the other. `free_at` is when the last one will have left."""

    __slots__ = ("us_per_byte", "free_at")

    def __init__(self, us_per_byte: float) -> None:
        self.us_per_byte = us_per_byte
        self.free_at = 0.0


class Nature:
    """A link's settings in microseconds, shared by all the paths of its kind."""

    __slots__ = (
        "spec",
        "latency_us",
        "jitter_us",
        "queue_us",
        "detect_us",
        "retransmit_us",
        "reorder_us",
        "rough",
    )

    def __init__(self, spec: LinkSpec) -> None:
        self.spec = spec
        self.latency_us = round(spec.latency_ms * MS)
        self.jitter_us = round(spec.jitter_ms * MS)
        self.queue_us = round(spec.queue_ms * MS)
        self.detect_us = round(spec.detect_ms * MS)
        self.retransmit_us = round(spec.retransmit_ms * MS)
        self.reorder_us = round(spec.reorder_ms * MS)
        self.rough = bool(spec.loss or spec.duplicate or spec.reorder)


class Condition:
    """Something wrong with all paths from `sources` to `targets` (node indexes) while it is active."""

    __slots__ = (
        "sources",
        "targets",
        "both_ways",
        "cut",
        "rejects",
        "extra_us",
        "loss",
        "duplicate",
        "reorder",
    )

    def __init__(
        self,
        sources: frozenset[int],
        targets: frozenset[int],
        *,
        both_ways: bool = True,
        cut: bool = False,
        rejects: bool = False,
        extra_us: int = 0,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
    ) -> None:
        self.sources = sources
        self.targets = targets
        self.both_ways = both_ways
        self.cut = cut
        self.rejects = rejects
        self.extra_us = extra_us
        self.loss = loss
        self.duplicate = duplicate
        self.reorder = reorder

    def covers(self, source: int, target: int) -> bool:
        if source in self.sources and target in self.targets:
            return True
        return self.both_ways and target in self.sources and source in self.targets

    def touched(self) -> frozenset[int]:
        """Nodes whose outgoing paths may be covered."""
        return self.sources | self.targets if self.both_ways else self.sources


class Path:
    """One direction between two nodes, as it is now: the link's nature plus the active conditions.

    `clear` is the hot path's one question at arrival: neither cut nor still catching up after a cut.
    `rough` is its one question at departure: anything random or broken beyond latency and jitter.
    """

    __slots__ = (
        "source", "target", "source_index", "source_address", "nature", "pipes",
        "latency_us", "jitter_us", "queue_us", "backlog_us",
        "rough", "clear", "cut", "rejects", "loss", "duplicate", "reorder",
        "fifo_at", "channel", "stalled", "sent_bytes",
    )  # fmt: skip

    def __init__(
        self, source: "SimNode", target: "SimNode", nature: "Nature", pipes: tuple[Pipe, ...]
    ) -> None:
        self.source = source
        self.target = target
        self.source_index = source.index
        self.source_address = source.address
        self.nature = nature
        self.pipes = pipes
        self.latency_us = nature.latency_us
        self.jitter_us = nature.jitter_us
        self.queue_us = nature.queue_us
        self.backlog_us = 0.0
        self.loss = nature.spec.loss
        self.duplicate = nature.spec.duplicate
        self.reorder = nature.spec.reorder
        self.rough = nature.rough
        self.cut = self.rejects = False
        self.clear = True
        self.fifo_at = 0
        self.channel: Channel | None = None
        self.stalled: deque[Message] | None = None
        self.sent_bytes = 0

    def apply(self, conditions: list[Condition]) -> None:
        """Recompute from the link's nature and whatever is wrong now."""
        nature, spec = self.nature, self.nature.spec
        self.latency_us = nature.latency_us + sum(one.extra_us for one in conditions)
        self.cut = any(one.cut for one in conditions)
        self.rejects = any(one.rejects for one in conditions)
        delivered = 1.0 - spec.loss
        for one in conditions:
            delivered *= 1.0 - one.loss
        self.loss = 1.0 - delivered
        self.duplicate = min(1.0, spec.duplicate + sum(one.duplicate for one in conditions))
        self.reorder = min(1.0, spec.reorder + sum(one.reorder for one in conditions))
        self.rough = self.cut or bool(self.loss or self.duplicate or self.reorder)
        self.clear = not self.cut and not self.stalled

    def opened(self) -> None:
        """A channel starts on this path, with nothing kept from an earlier one."""
        slowest = max((pipe.us_per_byte for pipe in self.pipes), default=0.0)
        self.backlog_us = self.nature.spec.backlog_mb * 1e6 * slowest
        self.stalled = None
        self.clear = not self.cut

    def idle(self, now_us: int) -> bool:
        """Whether a fresh path would behave the same, so that this one may be forgotten."""
        return (
            self.channel is None
            and self.fifo_at <= now_us
            and all(pipe.free_at <= now_us for pipe in self.pipes)
        )


class Channel:
    """A FIFO channel between two nodes, both ways, as a TCP connection is: it breaks for both at once."""

    __slots__ = ("forth", "back", "open", "doom")

    def __init__(self, forth: Path, back: Path) -> None:
        self.forth = forth
        self.back = back
        self.open = True
        self.doom = 0
        """The event that will break it unless it heals first; 0 when nothing is wrong."""

    @property
    def refused(self) -> bool:
        """Whether a new one is refused: by the machine, whose process is gone, or by something on the way."""
        forth, back = self.forth, self.back
        if forth.rejects or back.rejects:
            return True
        return not (forth.cut or back.cut) and not forth.target.up and forth.target.refuses

    @property
    def ailing(self) -> bool:
        """Whether something is wrong that will break it if it lasts."""
        forth, back = self.forth, self.back
        return forth.cut or back.cut or not (forth.source.up and forth.target.up)
