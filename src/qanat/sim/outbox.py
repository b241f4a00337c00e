"""What a machine says after a `persist`, held until its record is on disk."""

import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qanat.events.errors import LocalError
from qanat.kernel import Address
from qanat.sim.journal import Journal
from qanat.sim.units import MS

if TYPE_CHECKING:
    from qanat.sim.node import SimNode

HELD_OUTPUTS = 1_000_000
"""Outputs that may wait for the disk; more means that a machine does not stop while its disk is stuck."""


class Outbox:
    """One node's journal and the outputs that wait for it; made at the node's first `persist`.

    While anything waits, the node's `holding` is this outbox; otherwise it is None and outputs go out at
    once. One sync runs at a time and covers all that was written before it began.
    """

    __slots__ = ("_node", "_journal", "_held", "_syncing", "stuck")

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._journal = Journal(int(node.world.disk.limit_mb * 1e6))
        self._held: deque[tuple[int, str, Any, Any]] = deque()
        self._syncing = False
        self.stuck = False

    def persist(self, record: bytes) -> None:
        self._journal.append(record)
        self._node.holding = self
        self._start_sync()

    def hold(self, kind: str, to: Address | None, item: Any) -> None:
        if len(self._held) >= HELD_OUTPUTS:
            raise LocalError(f"{self._node.address}: {HELD_OUTPUTS} outputs wait for the disk")
        self._held.append((self._journal.written, kind, to, item))

    def stick(self, stuck: bool) -> None:
        """A full or hanging disk: no sync completes, so nothing that depends on one leaves the node."""
        self.stuck = stuck
        if not stuck:
            self._start_sync()

    def crash(self, rng: random.Random) -> tuple[int, bool]:
        """Held outputs are gone; of unsynced records some. Returns how many are lost, and if one is torn."""
        self._held.clear()
        self._syncing = False
        self._node.holding = None
        return self._journal.crash(rng, self._node.world.disk.torn)

    def forget(self, share: float) -> None:
        self._journal.forget(share)

    def surviving(self) -> Sequence[bytes]:
        return self._journal.surviving()

    def _start_sync(self) -> None:
        journal, world = self._journal, self._node.world
        if self._syncing or self.stuck or journal.written == journal.durable:
            return
        self._syncing = True
        after_us = int((world.disk.sync_ms + world.disk.jitter_ms * world.draw()) * MS)
        world.after(after_us, self._synced, self._node.life, journal.written)

    def _synced(self, life: int, count: int) -> None:
        node = self._node
        if life != node.life:
            return
        if not node.ready:
            node.queue(self._synced, life, count)
            return
        if self.stuck:
            node.world.after(MS, self._synced, life, count)
            return
        self._syncing = False
        self._journal.durable = count
        if node.world.trace_entries is not None:
            node.world.trace_entries.append((node.world.now, "synced", node.index, count))
        self._start_sync()
        self._release(count)

    def _release(self, durable: int) -> None:
        """Let out what waited for the records up to `durable`, in the order of the calls."""
        node, held = self._node, self._held
        node.holding = None
        while held and held[0][0] <= durable:
            _, kind, to, item = held.popleft()
            if kind == "cast":
                node.cast(to, item)
            elif kind == "send":
                node.send(to, item)
            elif kind == "persisted":
                node.when_persisted(item)
            else:
                node.deliver(item)
        if held or self._journal.written > durable:
            node.holding = self
