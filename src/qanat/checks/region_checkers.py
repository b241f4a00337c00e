"""What whole regions promise, looked at from outside."""

from typing import Any

from qanat.checks.chain_checkers import READ_BYTES, lacking, whole_chain
from qanat.checks.chain_hosts import REPLICAS, chain_of, history_of
from qanat.checks.chain_publishers import placed, unaccounted, who_waits
from qanat.checks.region_hosts import RegionStudy, region_of, regions, replicas_in, stream_of
from qanat.events.batch import Kind
from qanat.kernel import Address
from qanat.log import StreamLog
from qanat.log.checker import Event, Grave, collects, rows_of
from qanat.protocols.chain import Configuration, Stable
from qanat.serving.log_history import LogHistory
from qanat.sim import Checker, SimNode, World


def rows(history: LogHistory, stream: int, first: int, last: int) -> list[Event | Grave]:
    """What stands for `first`..`last`; the first row may begin before."""
    found: list[Event | Grave] = []
    while first <= last:
        batches = history.read(stream, first, READ_BYTES)
        if not batches:
            break
        found += rows_of(batches)
        first = batches[-1].last + 1
    return [row for row in found if bounds(row)[0] <= last]


def bounds(row: Event | Grave) -> tuple[int, int]:
    return (row.first, row.last) if isinstance(row, Grave) else (row.seq, row.seq)


class Truth(Checker):
    """The streams as they were first shown, which was at their owners'; None for an event that was collected
    by then."""

    def __init__(self, study: RegionStudy) -> None:
        self.study = study
        self.truth: dict[int, list[Event | None]] = {}
        self._checked: dict[tuple[Address, int], tuple[StreamLog, int]] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Stable):
            self.on_stable(node, item.stream, item.upto)

    def on_stable(self, node: SimNode, stream: int, upto: int) -> None:
        """Looks at what this tail shows that it had not shown before, or all of it if the log is another."""
        history = history_of(node)
        log, checked = self._checked.get((node.address, stream), (None, 0))
        start = checked + 1 if log is history.logs[stream] else 1
        truth = self.truth.setdefault(stream, [])
        if upto > len(truth) and not chain_of(node).owns(stream):
            self.fail(f"{upto} of {stream:#x} is shown here, its owner has shown {len(truth)}")
        expected = start
        for row in rows(history, stream, start, upto):
            first, last = bounds(row)
            if first > expected:
                self.fail(f"event {expected} of {stream:#x} was shown, but nothing stands for it")
            self._on_row(stream, truth, row, min(last, upto))
            expected = last + 1
        if expected <= upto:
            self.fail(f"{upto} of {stream:#x} is shown, but {expected} is not there")
        self._checked[node.address, stream] = (history.logs[stream], upto)

    def _on_row(self, stream: int, truth: list[Event | None], row: Event | Grave, last: int) -> None:
        if isinstance(row, Grave):
            truth += [None] * (last - len(truth))
            for number in range(row.first, last + 1):
                self.on_grave(stream, number)
        elif row.seq > len(truth):
            truth.append(row)
            self.on_new(stream, row)
        elif truth[row.seq - 1] not in (None, row):
            self.fail(f"{row} is shown of {stream:#x}, which was {truth[row.seq - 1]} before")

    def on_new(self, stream: int, event: Event) -> None:
        """Shown for the first time anywhere."""

    def on_grave(self, stream: int, number: int) -> None:
        """A tombstone is shown for it."""

    def collected(self, stream: int, number: int, answered: Event | None = None) -> bool:
        """Whether something that was shown collects it; True as well if nobody knows any more what it was: it
        was never shown, and its publisher was not told that it has this number."""
        truth = self.truth[stream]
        event = truth[number - 1] or answered
        later = (g for g in truth[number:] if g is not None)
        return event is None or any(collects(g, event, self.study.policy) for g in later)


class OneHistory(Truth):
    """Every region shows the same sequence, without a gap: what was shown once, anywhere, never changes and
    never goes. Only the owner's tail is the first to show an event. Each source is in order and nothing is
    there twice; what was answered is there. A tombstone is followed by an event that collects what it stands
    for."""

    name = "one-history"

    def __init__(self, study: RegionStudy) -> None:
        super().__init__(study)
        self._last: dict[str, int] = {}
        self._graves: set[tuple[int, int]] = set()

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        super().on_deliver(world, node, item)
        if isinstance(item, Stable) and history_of(node).durable(item.stream) < item.upto:
            self.fail(f"it shows {item.upto}, of which {history_of(node).durable(item.stream)} are on disk")

    def on_new(self, stream: int, event: Event) -> None:
        source, position = event.payload.decode().split(":")
        before = self._last.get(source, 0)
        if int(position) <= before:
            self.fail(f"{event} comes after position {before}: a duplicate or out of order")
        if int(position) > before + 1 and None not in self.truth[stream]:
            self.fail(f"{event} comes after position {before}: what was in between is lost")
        self._last[source] = int(position)

    def on_grave(self, stream: int, number: int) -> None:
        self._graves.add((stream, number))

    def waiting_for(self, world: World) -> str | None:
        missing = unaccounted(world, {stream: len(truth) for stream, truth in self.truth.items()})
        if missing is not None:
            return missing
        for stream, truth in self.truth.items():
            answered = placed(world, stream)
            for number, event in answered.items():
                if truth[number - 1] not in (None, event):
                    return f"{event} of {stream:#x} was answered, {truth[number - 1]} is there"
            for number in sorted(number for at, number in self._graves if at == stream):
                if not self.collected(stream, number, answered.get(number)):
                    return (
                        f"event {number} of {stream:#x} is under a tombstone, but nothing shown collects it"
                    )
        return None


class Places(Checker):
    """Who does what in a region: only a head has sources, only a tail that may serve has pushed anything, and
    that no further than the region has shown; once another has served, never again. Nothing is stored while a
    fence is up."""

    name = "places"

    def __init__(self, study: RegionStudy) -> None:
        self._mode = study.mode
        self._shown: dict[tuple[str, int], int] = {}
        self._serves: dict[str, int] = {}
        self._pushed: dict[Address, dict[tuple[int, Address, int, int], int]] = {}
        self._fenced: dict[Address, tuple[int, int, dict[int, int]]] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Stable):
            key = (node.region, item.stream)
            self._shown[key] = max(item.upto, self._shown.get(key, 0))
            self._serves[node.region] = max(item.epoch, self._serves.get(node.region, 0))

    def on_trace(self, world: World, node: SimNode, what: str, fields: dict[str, Any]) -> None:
        if what == "lost here" and self._mode == "always":
            self.fail(f"another region has more of {fields['stream']:#x} than its owner")

    def on_step(self, world: World, node: SimNode) -> None:
        if node.group != REPLICAS or not node.up:
            return
        machine = region_of(node)
        chain = machine.chain
        if not chain.is_head or chain.is_fenced:
            for stream, expects in machine.receiving.expects.items():
                if expects.source is not None:
                    self.fail(f"it takes {stream:#x} from {expects.source}, but another is the head")
        self._check_fence(node)
        self._check_cursors(node)

    def _check_fence(self, node: SimNode) -> None:
        chain, history = region_of(node).chain, history_of(node)
        if not chain.is_fenced:
            self._fenced.pop(node.address, None)
            return
        held = {stream: history.counter(stream) for stream in history.streams()}
        life, fence, before = self._fenced.get(node.address, (0, 0, {}))
        if (life, fence) == (node.life, chain.fence) and any(held[s] > before.get(s, 0) for s in held):
            self.fail("it stores events while a fence is up")
        self._fenced[node.address] = (node.life, chain.fence, held)

    def _check_cursors(self, node: SimNode) -> None:
        before = self._pushed.get(node.address, {})
        now = {
            (stream, peer, cursor.token, node.life): cursor.following
            for stream, subscribers in region_of(node).sending.cursors.items()
            for peer, cursor in subscribers.items()
        }
        if now == before:
            return
        self._pushed[node.address] = now
        for key, following in now.items():
            stream = key[0]
            if following <= before.get(key, following):
                continue
            if chain_of(node).epoch < self._serves.get(node.region, 0):
                self.fail(
                    f"it pushes to {key[1]}, but another serves since epoch {self._serves[node.region]}"
                )
            shown = self._shown.get((node.region, stream), 0)
            if (
                node.holding is not None
            ):  # what it shows waits for its journal, and what it pushes waits behind that
                shown = max(shown, chain_of(node).shown(stream))
            if following - 1 > shown:
                self.fail(
                    f"it pushes {stream:#x} up to {following - 1} to {key[1]}, which its region has not shown"
                )


class Settled(Checker):
    """After healing every publish is answered, every chain has its length, and all replicas hold and show
    every event."""

    name = "settles"

    def __init__(self, study: RegionStudy) -> None:
        self._study = study

    def waiting_for(self, world: World) -> str | None:
        waits = who_waits(world)
        if waits is not None:
            return waits
        configurations: dict[str, Configuration] = {}
        for region in regions(world):
            found = whole_chain(replicas_in(world, region), self._study.chain.replicas)
            if isinstance(found, str):
                return f"{region}: {found}"
            configurations[region] = found
        for owner in regions(world):
            stream = stream_of(owner)
            wanted = history_of(world.nodes[configurations[owner].head.at()]).counter(stream)
            for region, configuration in configurations.items():
                lacks = lacking(world, configuration, stream, wanted)
                if lacks:
                    return f"{region} of {owner}'s stream: {lacks}"
        return None


class CollectedAlike(Truth):
    """After healing, and once everybody has collected, every replica in every region keeps exactly the data
    events that a naive reader of the whole stream would keep, and the same GC events."""

    name = "collected"

    def waiting_for(self, world: World) -> str | None:
        for stream, truth in self.truth.items():
            events = [event for event in truth if event is not None]
            kept = {event.seq for event in events if not self.collected(stream, event.seq)}
            data = {event.seq for event in events if event.kind is Kind.DATA}
            seen: dict[Address, set[int]] = {}
            for node in (node for region in regions(world) for node in replicas_in(world, region)):
                if not chain_of(node).is_member:
                    continue
                found = rows(history_of(node), stream, 1, len(truth))
                alive = {row.seq for row in found if isinstance(row, Event)}
                if alive & data != kept & data:
                    wrong = sorted((alive & data) ^ (kept & data))
                    return f"{node.address} keeps or collected {wrong[:5]} of {stream:#x}, unlike the model"
                seen[node.address] = alive - data
            if len(set(map(frozenset, seen.values()))) > 1:
                return f"replicas keep different GC events of {stream:#x}: {seen}"
        return None
