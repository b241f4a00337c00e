"""What a node's connections did, for its metrics and its log."""

import logging
from typing import TYPE_CHECKING

from qanat.runtime.budget import MemoryBudget
from qanat.runtime.metrics import Metrics
from qanat.runtime.service import Closed

if TYPE_CHECKING:
    from qanat.runtime.connection import Connection

log = logging.getLogger("qanat.transport")

_NO_BUDGET = 1 << 62
_QUIET = frozenset({"closed", "idle", "shutdown", "eof", "goodbye", "duplicate", "local"})


class Traffic:
    """Counts for all connections that share it: one per node.

    Bytes are counted by each connection for itself and summed when somebody reads the metrics.
    """

    def __init__(
        self, metrics: Metrics | None = None, *, warns: bool = True, budget: MemoryBudget | None = None
    ) -> None:
        """`warns`: whether a connection that broke is worth a line in the log, or peers come and go all the
        time. `budget` is the process's, which
        a library in somebody else's does not have."""
        self._warns = warns
        metrics = metrics or Metrics()
        self.budget = budget or MemoryBudget(_NO_BUDGET)
        self.live: set[Connection] = set()
        self.frames_in = metrics.counter("transport_frames_received", "Frames received.")
        self.write_pauses = metrics.counter(
            "transport_write_pauses", "Times that a connection queued more than its high mark."
        )
        self.connects = metrics.counter("transport_connections_opened", "Connections opened.")
        self.closes = metrics.counters(
            "transport_connections_closed", "Connections closed, by reason.", ("reason",)
        )
        self.dial_failures = metrics.counters(
            "transport_dial_failures", "Failed attempts to connect, by reason.", ("reason",)
        )
        self.datagrams_in = metrics.counter("transport_datagrams_received", "Datagrams accepted.")
        self.datagrams_out = metrics.counter("transport_datagrams_sent", "Datagrams sent.")
        self.datagrams_dropped = metrics.counters(
            "transport_datagrams_dropped", "Datagrams dropped, by reason.", ("reason",)
        )
        self.placed_bytes = metrics.counter(
            "transport_placed_bytes", "Bytes handed over in memory or files on this machine instead of sent."
        )
        self.rtt = metrics.histogram("transport_rtt_seconds", "Round-trip time of a heartbeat.")
        self._past_in = self._past_out = 0
        metrics.gauge_of("transport_connections", "Open connections.", (), lambda: [((), len(self.live))])
        metrics.gauge_of(
            "transport_queued_bytes",
            "Bytes that wait to be sent.",
            (),
            lambda: [((), sum(c.queued_bytes for c in self.live))],
        )
        metrics.counter_of(
            "transport_received_bytes", "Bytes received.", (), lambda: [((), self.received_bytes)]
        )
        metrics.counter_of("transport_sent_bytes", "Bytes sent.", (), lambda: [((), self.sent_bytes)])

    @property
    def received_bytes(self) -> int:
        return self._past_in + sum(c.bytes_in for c in self.live)

    @property
    def sent_bytes(self) -> int:
        return self._past_out + sum(c.bytes_out for c in self.live)

    def opened(self, connection: "Connection") -> None:
        self.live.add(connection)
        self.connects.value += 1
        log.debug("connected", extra={"peer": connection.label, "dialled": connection.dialled})

    def ended(self, connection: "Connection", reason: Closed) -> None:
        self.live.discard(connection)
        self._past_in += connection.bytes_in
        self._past_out += connection.bytes_out
        self.closes.labels(reason.code).value += 1
        level = logging.WARNING if self._warns and reason.code not in _QUIET else logging.DEBUG
        log.log(
            level,
            "connection closed",
            extra={"peer": connection.label, "reason": reason.code, "detail": reason.detail},
        )
