"""One session with a subscriber: items in order, how much of them is not handled, and the token that waits
for its answer."""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from qanat.events.batch import FRAME_LIMIT, Batch
from qanat.events.position import Position
from qanat.kernel import Address, Context, require
from qanat.protocols.publisher.messages import (
    Item,
    Join,
    Loss,
    Mark,
    Notice,
    Token,
    Updates,
    in_messages,
)
from qanat.protocols.publisher.records import Range
from qanat.protocols.publisher.witness import Seen, Witness, best

if TYPE_CHECKING:
    from qanat.protocols.publisher.flows import Flow, Served

ITEM_BYTES = 64
"""What an item counts at least, so that a window also bounds their number."""
TOKENS_KNOWN = 16
"""Of so many of the last tokens it is remembered what the log had there: who sends datamarkers of its own
accord is some tokens behind."""


class Marking(NamedTuple):
    """Flows that would be marked up to here, where this is the last update of the log."""

    position: Position
    flows: "list[Flow]"
    seen: Seen


class Leaving(NamedTuple):
    """Flows that go elsewhere once item `number` is handled."""

    number: int
    flows: "list[Flow]"
    to: str


class Link:
    """`open`: there is a channel and a session on it. Between two sessions a subscriber keeps its shards,
    as long as its lease may last."""

    def __init__(self, context: Context, address: Address, served: "Served") -> None:
        self._context, self.address, self.served = context, address, served
        self.flows: dict[str, Flow] = {}
        self.waiting: dict[str, Flow] = {}
        """Those of its flows that are in no caravan."""
        self.session = self.life = self.attempt = 0
        self.weight = 1.0
        self.window = 0
        self.lease_us = self.outlasts_us = 0
        """The lease of its session, and how long it may last on any clock: what was said when it began."""
        self.open = False
        self.retiring = False
        """It is about to stop: it finishes what it has, and gets nothing new."""
        self.number = self.handled = 0
        self.bytes = 0
        """Sent (or held) and not handled."""
        self._sizes: deque[tuple[int, int]] = deque()
        self._stuck = False
        self._held: list[Batch] = []
        self._held_upto = Position(0, 0)
        self.held_bytes = 0
        self.tokens: dict[int, list[Marking]] = {}
        """Tokens under way by their numbers, and what each would mark."""
        self.witnesses: deque[Witness] = deque(maxlen=TOKENS_KNOWN)
        self.leaving: deque[Leaving] = deque()
        self.due_ticks = 0
        """Looks until the next token."""
        self.sent_updates = self.sent_bytes = 0

    @property
    def takes(self) -> bool:
        """Whether it can be sent more. Once its window is full, half of it must be handled first."""
        return self.open and not self._stuck

    @property
    def wants(self) -> bool:
        """Whether it can be given more shards."""
        return self.open and not self.retiring

    @property
    def full(self) -> bool:
        return self.bytes >= self.window

    def add(self, flow: "Flow") -> None:
        require(flow.link is None and flow.caravan is None, "a flow has one subscriber at a time")
        flow.link = self
        self.flows[flow.shard] = self.waiting[flow.shard] = flow

    def remove(self, flow: "Flow") -> None:
        """Whoever has it next begins at its marker."""
        require(flow.link is self and flow.caravan is None, "a flow that travels keeps its subscriber")
        del self.flows[flow.shard], self.waiting[flow.shard]
        flow.link, flow.leaving, flow.told = None, False, 0
        flow.go_back()

    def begin(self, session: int, join: Join, window: int) -> None:
        """A session on a new channel: what was under way on an older one is void, and flows begin again at
        their markers."""
        self.end()
        self.session, self.life, self.attempt, self.window = session, join.life, join.attempt, window
        self.weight = join.weight if join.weight > 0 else 1.0
        self.open = True

    def end(self) -> None:
        self.open = self._stuck = self.retiring = False
        self.number = self.handled = self.bytes = self.held_bytes = 0
        self._sizes.clear()
        self._held = []
        self.forget_tokens()
        for leaving in self.leaving:
            for flow in leaving.flows:
                flow.leaving = False
        self.leaving.clear()
        require(len(self.waiting) == len(self.flows), "flows travel only while their subscriber is there")
        for flow in self.flows.values():
            flow.told = 0
            flow.go_back()

    def forget_tokens(self) -> None:
        """What is under way marks nothing any more."""
        self.tokens.clear()
        self.witnesses.clear()

    def done(self, number: int) -> bool:
        """The application handled all items up to this one; True if the link takes more from now on."""
        self.handled = max(self.handled, min(number, self.number))
        while self._sizes and self._sizes[0][0] <= self.handled:
            self.bytes -= self._sizes.popleft()[1]
        for number in [each for each in self.tokens if each <= self.handled]:
            del self.tokens[number]  # what is acknowledged is so before it is handled
        if self._stuck and self.bytes * 2 <= self.window:
            self._stuck = False
            return self.open
        return False

    # Items

    def notice(self, flows: "Iterable[Flow]") -> None:
        """These are its own from now on; and what was lost of them before."""
        told = list(flows)
        for some in in_messages([flow.shard for flow in told]):
            self._send(Notice(self.session, self._next(), tuple(some)), 8 * len(some))
        self.untold(told)

    def untold(self, flows: "Iterable[Flow]") -> None:
        ranges: dict[Range, list[Flow]] = {}
        for flow in flows:
            if flow.untold is not None:
                ranges.setdefault(flow.untold, []).append(flow)
        for (after, upto), some in ranges.items():
            shards = [flow.shard for flow in some]
            self.loss(shards, after, upto, "the log no longer had it when the shard was looked for")
            for flow in some:
                flow.told = self.number

    def loss(self, shards: list[str], after: Position, upto: Position, reason: str) -> None:
        self.served.lost_ranges += 1
        for some in in_messages(shards):
            self._send(Loss(self.session, self._next(), tuple(some), after, upto, reason), 8 * len(some))

    def mark(self, flows: "list[Flow]", *, last: bool) -> int:
        """Sends a token for these flows, as far as they are now, or more if one message does not name them
        all; the number of the last."""
        at = 0
        for some in in_messages([flow.shard for flow in flows]):
            self._token(flows[at : at + len(some)], last=last)
            at += len(some)
        return self.number

    def _token(self, flows: "list[Flow]", *, last: bool) -> None:
        places: dict[tuple[Position, Seen], list[Flow]] = {}
        for flow in flows:
            places.setdefault((flow.position, flow.seen), []).append(flow)
        order = sorted(places.items(), key=lambda place: place[0][0])
        marks = [Marking(position, some, seen) for (position, seen), some in order]
        told = tuple(Mark(each.position, tuple(flow.shard for flow in each.flows)) for each in marks)
        self._send(Token(self.session, self._next(), told, last), 8 * len(flows))
        self.tokens[self.number] = marks
        for each in marks:
            if each.seen is not None and each.seen not in self.witnesses:
                self.witnesses.append(each.seen)

    def knows(self, flow: "Flow") -> bool:
        """Whether the application is done with being told what was lost of a flow."""
        return flow.untold is None or 0 < flow.told <= self.handled

    def seen_by(self, flow: "Flow", position: Position) -> Seen:
        """The last update that is known of the log up to a place that this flow has had."""
        return best([flow.marked_seen, *(one for one in self.witnesses if one.upto <= position)])

    def updates(self, batch: Batch, upto: Position, *, hold: int) -> None:
        """Up to `hold` bytes wait for more, and never more than one message carries."""
        if self._held and self.held_bytes + batch.virtual_size > FRAME_LIMIT:
            self.flush()
        self._held.append(batch)
        self._held_upto = upto
        self.held_bytes += batch.virtual_size
        self.sent_updates += batch.count
        self.sent_bytes += batch.virtual_size
        self.served.sent_updates += batch.count
        self.served.sent_bytes += batch.virtual_size
        if self.held_bytes >= hold:
            self.flush()

    def updates_only(self, batch: Batch, upto: Position, only: list[str]) -> None:
        """Updates that concern every shard, for these; again for others of them, if one message does not name
        them all."""
        for some in in_messages(only):
            self._send(Updates(self.session, self._next(), (batch,), upto, tuple(some)), batch.virtual_size)

    def flush(self) -> None:
        """What was held goes out."""
        if self._held:
            batches, size, upto = tuple(self._held), self.held_bytes, self._held_upto
            self._held, self.held_bytes = [], 0
            self._send(Updates(self.session, self.number + 1, batches, upto), size)

    @property
    def waiting_bytes(self) -> int:
        return self.bytes + self.held_bytes

    def _next(self) -> int:
        """The number of an item that comes after all that was held."""
        self.flush()
        return self.number + 1

    def _send(self, item: Item, size: int) -> None:
        self.number = item.number
        self._sizes.append((item.number, size + ITEM_BYTES))
        self.bytes += size + ITEM_BYTES
        if self.full and not self._stuck:
            self.served.counts["full"] += 1
        self.served.counts[type(item).__name__] += 1
        self._stuck = self._stuck or self.full
        self._context.send(self.address, item)
