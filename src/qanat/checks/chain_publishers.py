"""Ordered sources that publish to a chain until they are answered."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from qanat.checks.chain_hosts import chain_of, replicas
from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.log.checker import Event, rows_of
from qanat.protocols.chain import Answered, Publish, Refused
from qanat.sim import SimNode, World
from qanat.sim.units import MS, S

OPENS = 0.1
"""How often a publish comes with an opening of streams."""


class Publishes(Protocol):
    """What a workload says of its publishers."""

    @property
    def every_ms(self) -> float: ...
    @property
    def event_bytes(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def patience_ms(self) -> float: ...
    @property
    def until_s(self) -> float: ...


class Publisher:
    """One ordered source. It publishes to whom it believes to be the head, and again until it is answered.
    Each time that it turns to another, and now and then in between, it opens its stream and a quiet one, as
    clients do."""

    def __init__(
        self, world: World, workload: Publishes, source: str, stream: int, quiet: int, targets: list[Address]
    ) -> None:
        self.world, self.workload = world, workload
        self.source, self.stream, self._quiet = source, stream, quiet
        self.position = 1
        self.unanswered: dict[int, Batch] = {}
        self.tickets: dict[int, int] = {}
        self.upto = 0
        """The highest number that an answer spoke of."""
        self.placed: dict[int, Event] = {}
        """Events by the number that an answer gave them; one that answers a retry names none."""
        self._targets = targets
        self._target = targets[0]
        self._attempt = 0
        world.deliver_hooks.append(self._on_deliver)

    @property
    def answered(self) -> int:
        """The position up to which everything was answered."""
        return min(self.unanswered, default=self.position) - 1

    def go_on(self) -> None:
        if self.world.now > self.workload.until_s * S:
            return
        # A source that nobody knows may begin anywhere, so its first publish must be answered before the
        # second goes.
        if len(self.unanswered) < (self.workload.window if 1 not in self.unanswered else 1):
            batch = self._batch(self.position)
            self.unanswered[self.position] = batch
            self._send(self.position)
            self.position += batch.count
        if self.world.workload_rng.random() < OPENS:
            self._open()
        every_us = self.workload.every_ms * MS
        self.world.after(round(every_us * (0.5 + self.world.workload_rng.random())), self.go_on)

    def _batch(self, position: int) -> Batch:
        rng = self.world.workload_rng
        rows = range(position, position + rng.randint(1, 4))
        return Batch.build(
            self.stream,
            [f"{self.source}:{position}".encode().ljust(self.workload.event_bytes) for position in rows],
            keys=[f"key-{rng.randint(0, 5)}".encode() for _ in rows],
            time_us=self.world.now,
            source=self.source,
            position=position,
        )

    def _open(self) -> None:
        """Nobody waits for the answer here; that one comes is the checkers' concern."""
        for stream in (self.stream, self._quiet):
            opening = Publish(self.world.next_event(), Batch.build(stream, []))
            self.world.nodes[self._target].request(opening)

    def _send(self, position: int) -> None:
        ticket = self.world.next_event()
        self.tickets[ticket] = position
        self.world.nodes[self._target].request(Publish(ticket, self.unanswered[position]))
        self.world.after(round(self.workload.patience_ms * MS), self._look, ticket)

    def _look(self, ticket: int) -> None:
        if self.tickets.get(ticket) in self.unanswered:
            self._again(None)

    def _again(self, hint: str | None) -> None:
        """Everything unanswered, in order, to the head we were told of or to anybody."""
        self.tickets.clear()
        self._attempt += 1
        guess = self.world.workload_rng.choice(self._targets)
        self._target = Address(hint) if hint in self._targets and self._attempt % 4 else guess
        self.world.after(20 * MS, self._resend, self._attempt)

    def _resend(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._open()
            for position in sorted(self.unanswered):
                self._send(position)

    def _on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Answered) and item.ticket in self.tickets:
            batch = self.unanswered.pop(self.tickets.pop(item.ticket), None)
            self.upto = max(self.upto, item.upto)
            if batch is not None and not item.dropped:
                for number, row in enumerate(rows_of([batch]), item.first):
                    if isinstance(row, Event):
                        self.placed[number] = replace(row, seq=number)
        elif isinstance(item, Refused) and item.ticket in self.tickets:
            self._again(item.head)


def publishers(world: World) -> list[Publisher]:
    """Those of a world, found by their hooks: a table of worlds would keep each of them alive."""
    owners = (getattr(hook, "__self__", None) for hook in world.deliver_hooks)
    return [owner for owner in owners if isinstance(owner, Publisher)]


def placed(world: World, stream: int) -> dict[int, Event]:
    """Every event of a stream whose number some publisher was told."""
    return {
        n: event for each in publishers(world) if each.stream == stream for n, event in each.placed.items()
    }


def unaccounted(world: World, shown: Mapping[int, int]) -> str | None:
    """Whether streams lack what was answered, or have more than was published; `shown` is how many events
    each has.

    It is counted by numbers, under which an event stands or its tombstone: so it holds whatever was
    collected.
    """
    for stream in sorted({publisher.stream for publisher in publishers(world)}):
        there = shown.get(stream, 0)
        those = [publisher for publisher in publishers(world) if publisher.stream == stream]
        for publisher in those:
            if publisher.upto > there:
                return (
                    f"{publisher.source} was answered for event {publisher.upto} of {stream:#x}, which shows"
                    f" {there}"
                )
        answered = sum(publisher.answered for publisher in those)
        if there < answered:
            return f"{answered} events of {stream:#x} were answered, {there} are there"
        published = sum(publisher.position - 1 for publisher in those)
        if there > published:
            return f"{published} events of {stream:#x} were published, {there} are there"
    return None


def who_waits(world: World) -> str | None:
    """A publisher, or a publish of whomever, that was not answered."""
    for publisher in publishers(world):
        if publisher.unanswered:
            return f"{publisher.source} waits for {len(publisher.unanswered)} answers"
    for node in replicas(world):
        if node.up and chain_of(node).unanswered:
            return f"{node.address} leaves {chain_of(node).unanswered} publishes unanswered"
    return None
