"""What a chain promises, looked at from outside."""

from typing import Any, cast

from qanat.checks.chain_hosts import OWNED, REMOTE, REPLICAS, ChainStudy, chain_of, history_of, replicas
from qanat.checks.chain_publishers import placed, unaccounted, who_waits
from qanat.kernel import Address
from qanat.log import StreamLog
from qanat.log.checker import Event, Grave, collects, rows_of
from qanat.log.config import Policy
from qanat.protocols.chain import Answered, Configuration, Stable
from qanat.protocols.history import HistoryTruncated
from qanat.serving.log_history import LogHistory
from qanat.sim import Checker, SimNode, World

READ_BYTES = 1 << 20


def events_of(history: LogHistory, stream: int) -> list[Event | Grave]:
    """All that stands in a stream."""
    found: list[Event | Grave] = []
    at = 1
    while batches := history.read(stream, at, READ_BYTES):
        found += rows_of(batches)
        at = batches[-1].last + 1
    return found


def rows(history: LogHistory, stream: int, first: int, last: int) -> dict[int, bytes | None]:
    """Payload by number, None where a tombstone stands or retention was; numbers that nothing stands for are
    missing."""
    found: dict[int, bytes | None] = {}
    at = first
    while at <= last:
        try:
            batches = history.read(stream, at, READ_BYTES)
        except HistoryTruncated as dropped:
            found.update(dict.fromkeys(range(at, dropped.last + 1)))
            at = dropped.last + 1
            continue
        if not batches:
            break
        for row in rows_of(batches):
            if isinstance(row, Grave):
                found.update(dict.fromkeys(range(row.first, row.last + 1)))
            else:
                found[row.seq] = row.payload
        at = batches[-1].last + 1
    return {number: payload for number, payload in found.items() if first <= number <= last}


class StableStays(Checker):
    """What the tail has shown never changes and never goes; it has every number once, and each source in
    order."""

    name = "stable"

    def __init__(self, study: ChainStudy) -> None:
        self.truth: dict[int, dict[int, bytes | None]] = {}
        self.last: dict[str, int] = {}
        self._checked: dict[Address, dict[int, tuple[StreamLog, int]]] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if not isinstance(item, Stable):
            return
        history, stream = history_of(node), item.stream
        if history.durable(stream) < item.upto:
            self.fail(f"it shows {item.upto} of which {history.durable(stream)} are on disk")
        checked = self._checked.setdefault(node.address, {})
        log, upto = checked.get(stream, (None, 0))
        start = upto + 1 if log is history.logs[stream] else 1
        truth = self.truth.setdefault(stream, {})
        found = rows(history, stream, start, item.upto)
        for number in range(start, item.upto + 1):
            if number not in found:
                self.fail(f"event {number} of {stream:#x} was shown, but nothing stands for it")
            self._compare(truth, stream, number, found[number])
        checked[stream] = (history.logs[stream], item.upto)

    def _compare(self, truth: dict[int, bytes | None], stream: int, number: int, row: bytes | None) -> None:
        if number not in truth:
            if number != len(truth) + 1:
                self.fail(f"event {number} of {stream:#x} is shown after {len(truth)}")
            truth[number] = row
            if row is not None and stream != REMOTE:
                self._in_order(row)
        elif row is not None and truth[number] is not None and row != truth[number]:
            self.fail(f"event {number} of {stream:#x} was shown as {truth[number]!r}, and is now {row!r}")

    def _in_order(self, row: bytes) -> None:
        source, position = row.decode().split(":")
        before = self.last.get(source, 0)
        if int(position) <= before:
            self.fail(f"{row!r} is shown after position {before} of {source}: a duplicate or out of order")
        self.last[source] = int(position)


class PrefixOfPredecessor(Checker):
    """A replica's history is the beginning of its predecessor's (both in the same epoch)."""

    name = "prefix"

    def __init__(self, study: object) -> None:
        self._checked: dict[Address, dict[int, tuple[int, int]]] = {}

    def on_step(self, world: World, node: SimNode) -> None:
        if node.group != REPLICAS or not node.up:
            return
        chain = chain_of(node)
        configuration, me = chain.configuration, chain.me
        if configuration is None or me is None or me not in configuration.replicas:
            return
        leader = configuration.leader(me)
        if leader is None:
            return
        before = world.nodes[leader.at()]
        if not before.up or chain_of(before).epoch != chain.epoch or chain_of(before).me != leader:
            return
        checked = self._checked.setdefault(node.address, {})
        for stream, log in history_of(node).logs.items():
            counter = log.next - 1
            epoch, upto = checked.get(stream, (0, 0))
            if not counter or (epoch, upto) == (chain.epoch, counter):
                continue
            if not chain.owns(stream):
                # Numbered elsewhere: whoever came back may have more, but never other events.
                counter = min(counter, history_of(before).counter(stream))
            elif counter > history_of(before).counter(stream):
                self.fail(f"it holds {counter} of {stream:#x}, more than its predecessor")
            start = upto + 1 if epoch == chain.epoch else 1
            mine = rows(history_of(node), stream, start, counter)
            theirs = rows(history_of(before), stream, start, counter)
            for number in range(start, counter + 1):
                both = (mine.get(number, b"nothing"), theirs.get(number, b"nothing"))
                if None not in both and both[0] != both[1]:
                    self.fail(f"event {number} of {stream:#x} is {both[0]!r}, at its predecessor {both[1]!r}")
            checked[stream] = (chain.epoch, counter)


class AnsweredIsStored(Checker):
    """A publish is answered by the one head of its epoch, when every replica has it on disk."""

    name = "answered"

    def __init__(self, study: object) -> None:
        self._heads: dict[tuple[str, int], Address] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if not isinstance(item, Answered):
            return
        head = self._heads.setdefault((node.region, item.epoch), node.address)
        if head != node.address:
            self.fail(f"it answers in epoch {item.epoch}, and so did {head}")
        configuration = cast(Configuration, chain_of(node).configuration)
        for member in configuration.replicas:
            other = world.nodes[member.at()]
            if not other.up or chain_of(other).me != member:
                continue
            held = history_of(other).durable(item.stream)
            if held < item.upto:
                self.fail(f"it answers for event {item.upto}, of which {member.address} has {held} on disk")


class RemovedStaysOut(Checker):
    """Once a new tail serves, or a new head answers, the old one never does again."""

    name = "fenced"

    def __init__(self, study: object) -> None:
        self._latest: dict[tuple[str, type], tuple[int, Address]] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if not isinstance(item, (Answered, Stable)):
            return
        epoch, who = self._latest.get((node.region, type(item)), (0, node.address))
        if item.epoch < epoch and who != node.address:
            self.fail(f"{type(item).__name__} of epoch {item.epoch}, after {who} served in epoch {epoch}")
        if item.epoch >= epoch:
            self._latest[node.region, type(item)] = (item.epoch, node.address)


def whole_chain(nodes: list[SimNode], wanted: int) -> Configuration | str:
    """The configuration of these replicas, once it has its wanted length and every member knows it; or what
    is lacking."""
    if not all(node.up for node in nodes):
        return "a replica is down"
    newest = max((chain_of(node) for node in nodes), key=lambda chain: chain.epoch).configuration
    if newest is None or len(newest.replicas) < min(wanted, len(nodes)) or newest.joining is not None:
        return f"the chain is {newest}"
    chains = {node.address: chain_of(node) for node in nodes}
    for member in newest.replicas:
        chain = chains[member.at()]
        if chain.epoch != newest.epoch or chain.me != member:
            return f"{member.address} is in epoch {chain.epoch}, not {newest.epoch}"
    return newest


def lacking(world: World, configuration: Configuration, stream: int, wanted: int) -> str | None:
    """Which replica does not have that many events on disk, or whether the tail does not show them."""
    for member in configuration.replicas:
        held = history_of(world.nodes[member.at()]).durable(stream)
        if held < wanted:
            return f"{member.address} has {held} of {wanted} events"
    shown = chain_of(world.nodes[configuration.tail.at()]).shown(stream)
    return f"the tail shows {shown} of {wanted} events" if shown < wanted else None


class Settles(Checker):
    """After healing every publish is answered, the chain has its wanted length, and all replicas hold
    everything."""

    name = "settles"

    def __init__(self, study: ChainStudy) -> None:
        self._study = study

    def waiting_for(self, world: World) -> str | None:
        waits = who_waits(world)
        if waits is not None:
            return waits
        found = whole_chain(replicas(world), self._study.chain.replicas)
        if isinstance(found, str):
            return found
        head = history_of(world.nodes[found.head.at()])
        lacks = (lacking(world, found, stream, head.counter(stream)) for stream in (*OWNED, REMOTE))
        return next(filter(None, lacks), None)


class NothingLost(StableStays):
    """Every event that was answered is in the stream, once, under the number that it was answered with:
    itself, or a tombstone that a later event of its key accounts for. Asked when all has come to rest."""

    name = "nothing-lost"

    def __init__(self, study: ChainStudy) -> None:
        super().__init__(study)
        self._study, self._policy = study, Policy(by_key=study.by_key)

    def waiting_for(self, world: World) -> str | None:
        missing = unaccounted(world, {stream: len(truth) for stream, truth in self.truth.items()})
        if missing is not None:
            return missing
        found = whole_chain(replicas(world), self._study.chain.replicas)
        if isinstance(found, str):
            return found
        history = history_of(world.nodes[found.head.at()])
        return next(filter(None, (self._misplaced(world, history, stream) for stream in OWNED)), None)

    def _misplaced(self, world: World, history: LogHistory, stream: int) -> str | None:
        alive = {row.seq: row for row in events_of(history, stream) if isinstance(row, Event)}
        for number, event in placed(world, stream).items():
            there = alive.get(number)
            if there is None and not any(collects(each, event, self._policy) for each in alive.values()):
                return (
                    f"{event} of {stream:#x} was answered and is gone, and nothing that is there collects it"
                )
            if there is not None and there.payload != event.payload:
                return f"{event} of {stream:#x} was answered, {there} is there"
        return None
