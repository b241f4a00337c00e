"""Those behind the edge of a stream, served by caravans: the log is read once for all who are near each other
(Wormhole, section 3.1).

The lead is the live edge, which `Delivery` serves. A caravan reads a piece at a time and each aboard is sent
it when its own window has room, from the caravan's wake; so the fastest is never waited for, and who falls
out of the wake gets off and is taken along by another.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from qanat.events.position import Position
from qanat.log.errors import CorruptLog
from qanat.log.reader import Chunk
from qanat.protocols.caravans.allocation import Caravans
from qanat.protocols.caravans.pace import Meter
from qanat.protocols.caravans.policy import Policy, make_policy
from qanat.serving.caravan_settings import CaravanControl
from qanat.serving.shared_frames import Piece
from qanat.serving.stream_caravans import Laggard, StreamCaravan
from qanat.serving.subscriber import Subscriber

if TYPE_CHECKING:
    from qanat.serving.delivery import Delivery

_STEP_BYTES = 8 << 20
"""Sent by one caravan before everybody else gets a turn: a few milliseconds."""
_IDLE_US = 10_000_000
"""A caravan from which nobody has taken anything for so long is given up: its wake holds pages of the log,
perhaps of files that are gone."""
_SOON_S = 0.002
"""What happens together is planned together."""
UNREAD_BYTES = 64
"""What a read counts that brought nothing."""


class Trailing:
    """The caravans of one stream; lives on the event loop. `place` takes those who have come to the edge."""

    def __init__(self, delivery: "Delivery", place: Callable[[Subscriber], None]) -> None:
        self.control = CaravanControl()
        self.laggards: dict[Subscriber, Laggard] = {}
        self.edge = StreamCaravan(
            0, Position(0), "the live edge: every new event is sent to all who are there"
        )
        self.caravans: Caravans[Laggard, StreamCaravan] = Caravans(StreamCaravan, self.edge)
        self.meter = Meter(self.control.config)
        self.reads = self.read_bytes = self.sent_bytes = self.losses = self.fallen = self.arrived = 0
        self._delivery, self._place = delivery, place
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._planned_s = 0.0
        self._moved = 0
        """Events that the edge went on since the last plan."""

    @property
    def now_us(self) -> int:
        return int(self._loop.time() * 1e6)

    # --- who travels ------------------------------------------------------------------------------------

    def serve(self, subscriber: Subscriber) -> bool:
        """It is behind the edge and takes more. False: it is to be read for alone.

        So are those who read the log's files themselves, for whom the server reads nothing; those who want
        one range of the log, which are many at different places on purpose; those whose filter takes long;
        and those whom one read brings to the edge.
        """
        laggard = self.laggards.get(subscriber)
        if laggard is None:
            if subscriber.files or subscriber.upto or subscriber.heavy or self._near_edge(subscriber.at):
                return False
            laggard = self.laggards[subscriber] = Laggard(subscriber, self.control)
        caravan = laggard.caravan or self._passing(laggard)
        if isinstance(caravan, StreamCaravan):
            self._step_soon(caravan)
        else:
            self._plan_soon()
        return True

    def _near_edge(self, start: int) -> bool:
        stream_log = self._delivery.log
        if start < stream_log.first:
            return False
        return stream_log.within(start, self.control.config.read_bytes) >= self._delivery.edge

    def _passing(self, laggard: Laggard) -> StreamCaravan | None:
        """One that has just what it needs takes it along; no plan would do better."""
        for caravan in self.caravans.all.values():
            near = caravan.reach <= laggard.cursor <= caravan.at.sequence and caravan is not self.edge
            if near and caravan.company == laggard.company:
                caravan.take(laggard)
                return caravan
        return None

    def remove(self, subscriber: Subscriber) -> None:
        laggard = self.laggards.pop(subscriber, None)
        if laggard is not None:
            self._off(laggard)

    def _off(self, laggard: Laggard) -> None:
        caravan = laggard.caravan
        if isinstance(caravan, StreamCaravan):
            caravan.leave(laggard)
            if caravan.empty:
                self.caravans.close(caravan)

    def stop(self) -> None:
        """Nobody is behind any more, or all are told to go elsewhere."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for subscriber in list(self.laggards):
            self.remove(subscriber)

    # --- plans ------------------------------------------------------------------------------------------

    def _plan_soon(self) -> None:
        pause = max(0.0, self._planned_s + _SOON_S - self._loop.time())
        if "soon" not in self._timers:
            self._timers["soon"] = self._loop.call_later(pause, self.plan)

    def plan(self) -> None:
        """Who travels with whom, and how fast; now, and again as long as anybody is behind."""
        for name in ("soon", "again"):
            timer = self._timers.pop(name, None)
            if timer is not None:
                timer.cancel()
        now_us, idle_s = self.now_us, self._loop.time() - self._planned_s
        self._planned_s = self._loop.time()
        config, caravans = self.control.config, self.caravans
        self.meter.config, caravans.now_us = config, now_us
        mean_bytes = self._move_edge(now_us, idle_s)
        for laggard in self.laggards.values():
            if laggard.caravan is not None and laggard.caravan.company != laggard.company:
                self._off(laggard)
        for caravan in [one for one in caravans.all.values() if one.laggards]:
            caravan.moved_us = caravan.moved_us or now_us
            if now_us - caravan.moved_us > _IDLE_US and caravan.stuck() is None:
                caravans.decide("disband", caravan, "nobody aboard has taken anything for a while")
                caravans.disband(caravan)
        waiting = [one for one in self.laggards.values() if one.caravan is None and one.subscriber.ready]
        if waiting or len(caravans.all) > 1:
            near = max(1, int(config.near_bytes / mean_bytes))
            caravans.arrange(waiting, self._policy(near), config.caravans_max)
        self.meter.allot(caravans, now_us)
        for caravan in caravans.all.values():
            self._step_soon(caravan)
        if any(one.caravan is None for one in waiting):
            self._plan_soon()
        if self.laggards:
            self._timers["again"] = self._loop.call_later(config.plan_ms / 1000, self.plan)

    def _policy(self, near: int) -> Policy:
        return make_policy(self.control.config.policy, near)

    def follow_edge(self) -> None:
        """The lead is where the edge is."""
        before, heads = self.edge.at.sequence, [one.at.sequence for one in self.caravans.all.values()]
        self.edge.at = Position(max(self._delivery.edge, *heads))
        self._moved += self.edge.at.sequence - before if before else 0

    def _move_edge(self, now_us: int, idle_s: float) -> float:
        """The lead is as fast as the edge; by the mean size of an event, which is returned. What it did while
        nobody was behind is past."""
        stats = self._delivery.log.stats()
        mean_bytes = max(1.0, stats.bytes / max(1, stats.rows))
        self.follow_edge()
        if idle_s <= 2 * self.control.config.plan_ms / 1000:
            self.meter.took(self.edge, int(self._moved * mean_bytes), now_us)
        self._moved = 0
        return mean_bytes

    # --- the way ------------------------------------------------------------------------------------------

    def _step_soon(self, caravan: StreamCaravan) -> None:
        if not caravan.scheduled and caravan is not self.edge:
            caravan.scheduled = True
            self._loop.call_soon(self._step, caravan)

    def _step(self, caravan: StreamCaravan) -> None:
        """Everybody aboard who is behind its head and takes more gets one piece; when there is no such, it
        reads on."""
        caravan.scheduled = False
        if self.caravans.all.get(caravan.number) is not caravan:
            return
        self._join(caravan)
        sent = work = 0
        more = first = False
        for laggard in list(caravan.laggards):
            subscriber = laggard.subscriber
            if not subscriber.ready or laggard.caravan is not caravan:
                continue
            piece = caravan.piece(subscriber.at)
            if piece is None:
                first = True
                continue
            more = True
            if work > _STEP_BYTES:
                break
            sent += self._send(piece, laggard)
            work += piece.size  # with a filter it is looked through, however little is sent
        if more:
            caravan.moved_us = self.now_us
        self.sent_bytes += sent
        if not more and first:
            more = self._read_on(caravan)
        if caravan.empty:
            self.caravans.close(caravan)
        elif more:
            self._step_soon(caravan)

    def _send(self, piece: Piece, laggard: Laggard) -> int:
        subscriber = laggard.subscriber
        size = piece.send(subscriber)
        if subscriber.filter is None:
            self._delivery.delivered_bytes += size
        elif subscriber.silent_from < subscriber.at:
            self._delivery.tell_silence_later()
        if subscriber.at > self._delivery.edge and self.laggards.pop(subscriber, None) is not None:
            self.arrived += 1
            if isinstance(laggard.caravan, StreamCaravan):
                laggard.caravan.leave(laggard)
            self._place(subscriber)
        return size

    def _join(self, caravan: StreamCaravan) -> None:
        """Who has come to what the next one on the way has read goes on with that one; if all have, it is one
        caravan from there."""
        front = self.caravans.ahead_of(caravan)
        if front is None:
            return
        there = [laggard for laggard in caravan.laggards if laggard.cursor >= front.reach]
        if not there:
            return
        self.caravans.now_us = self.now_us
        if len(there) == len(caravan.laggards):
            self.caravans.merge(caravan, front)
        else:
            for laggard in there:
                caravan.leave(laggard)
                front.take(laggard)
            self.caravans.moves += len(there)
        self._step_soon(front)

    def _read_on(self, caravan: StreamCaravan) -> bool:
        """Whether it has more for somebody."""
        now_us, start = self.now_us, caravan.at.sequence + 1
        if start > self._delivery.readable:
            return False
        delay_us = self.meter.delay_us(caravan, now_us)
        if delay_us is None:
            return False
        if delay_us:
            self._step_later(caravan, delay_us / 1e6)
            return False
        try:
            found = self._delivery.read_on(start, self.control.config.read_bytes)
        except CorruptLog as error:
            self._damaged(caravan, error)
            return False
        if isinstance(found, Chunk) and not found.data:
            self._step_later(caravan, _SOON_S)
            return False
        piece = Piece(found, start)
        self.losses += piece.chunk is None
        self.reads += 1
        caravan.reads += 1
        self.read_bytes += piece.size
        caravan.read_bytes += piece.size
        self.meter.took(caravan, piece.size + UNREAD_BYTES, now_us)
        caravan.keep(piece, self.control.config.wake_bytes)
        self._leave_behind(caravan, now_us)
        return True

    def _step_later(self, caravan: StreamCaravan, pause_s: float) -> None:
        name = f"read/{caravan.number}"

        def late() -> None:
            del self._timers[name]
            self._step_soon(caravan)

        if name not in self._timers:
            self._timers[name] = self._loop.call_later(pause_s, late)

    def _leave_behind(self, caravan: StreamCaravan, now_us: int) -> None:
        """Who takes no more is not waited for: when the wake has passed it, it gets off."""
        reach = caravan.reach
        slow = [laggard for laggard in caravan.laggards if laggard.cursor < reach]
        if slow:
            self.caravans.now_us = now_us
            names = ", ".join(laggard.name for laggard in slow[:3]) + (", …" if len(slow) > 3 else "")
            self.caravans.decide(
                "leave", caravan, f"{len(slow)} could not keep up and fell out of its wake: {names}"
            )
            for laggard in slow:
                caravan.leave(laggard)
            self.caravans.moves += len(slow)
            self.fallen += len(slow)

    def _damaged(self, caravan: StreamCaravan, error: CorruptLog) -> None:
        """Who needs what is damaged is told; the others get off, and are taken along from where they are."""
        why = self._delivery.damaged(error)
        for laggard in list(caravan.laggards):
            if laggard.cursor == caravan.at.sequence:
                self._delivery.end_subscription(laggard.subscriber, why)
            else:
                self._off(laggard)
        self._plan_soon()
