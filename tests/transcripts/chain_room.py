"""Replicas of one chain, of which a transcript says what reaches whom, and what is on whose disk.

chain 7 a b c            the coordinator says: epoch 7 is a, b, c, confirmed (`unconfirmed` at the end:
not yet;
                         `wary`: who was the tail before may still believe to be it)
joins 7 d a b c          the same, and d catches up behind c
publish a x y            two events
sync a                   what a has appended is on its disk
persisted a              what a has persisted is on its disk
pass a b [3]             the next message (or 3, or `all`) from a reaches b
flow                     every message reaches its end, and whatever is said to it
ring a failure           a timer runs out
break a b                the channel between them breaks, with all that is on it
lease a no               a has no lease of the coordinator
forget a                 a is started again, with what its disk has
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.transcripts.transcript import shown
from tests.unit.protocols.contexts import InOrder

from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.chain import ChainConfig
from qanat.protocols.chain.configuration import Configuration, Member
from qanat.protocols.chain.flow import GATHER
from qanat.protocols.chain.machine import Chain
from qanat.protocols.chain.records import decode
from qanat.protocols.chain.requests import Configured, Publish, WasReset
from qanat.protocols.history import Synced
from qanat.protocols.history_memory import MemoryHistory

STREAM = 1
NOW = 1_000_000


class Disk(MemoryHistory):
    """What is appended is on disk once somebody says so."""

    def __init__(self) -> None:
        super().__init__()
        self.upto: dict[int, int] = {}

    def streams(self) -> list[int]:
        return sorted(self._streams)

    def durable(self, stream: int) -> int:
        return self.upto.get(stream, 0)

    def synced(self, stream: int) -> int | None:
        return self.durable(stream)

    def survived(self) -> Disk:
        """After a power cut."""
        left = Disk()
        for stream, upto in self.upto.items():
            for batch in self.read(stream, 1, 1 << 20, upto):
                left.append_numbered(batch)
            left.upto[stream] = left.counter(stream)
        return left


class Replica:
    def __init__(self, room: ChainRoom, name: str, disk: Disk, saved: list[bytes]) -> None:
        self.name, self.disk, self.saved = name, disk, saved
        self.context = InOrder(Address(name))
        self.leased = True
        self.machine = Chain(
            self.context,
            ChainConfig(),
            disk,
            owns=lambda stream: True,
            may_serve=lambda now_us: self.leased,
            report=lambda report: room.lines.append(f"{name} reports {shown(report)}"),
            wary_us=2_000_000,
            stable=lambda stream: None,
        )
        self.waits: list[str] = []
        self.machine.on_start(NOW, saved)


class ChainRoom:
    def __init__(self) -> None:
        self.replicas: dict[str, Replica] = {}
        self.lines: list[str] = []
        self._mail: dict[tuple[str, str], deque[Any]] = {}
        self._ticket = 0
        self._lives: dict[str, int] = {}

    def said(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def do(self, words: list[str]) -> None:
        command, *rest = words
        getattr(self, f"_{command}")(*rest)
        self._settle()

    def _chain(self, epoch: str, *names: str) -> None:
        line = tuple(self._member(name) for name in names if name not in ("unconfirmed", "wary"))
        self._configure(
            Configuration(int(epoch), line, confirmed="unconfirmed" not in names, wary="wary" in names)
        )

    def _joins(self, epoch: str, joining: str, *names: str) -> None:
        line = tuple(map(self._member, names))
        self._configure(Configuration(int(epoch), line, joining=self._member(joining), confirmed=True))

    def _member(self, name: str) -> Member:
        if name not in self.replicas:
            self._lives[name] = 1
            self.replicas[name] = Replica(self, name, Disk(), [])
        return Member(name, self._lives[name])

    def _configure(self, configuration: Configuration) -> None:
        for member in configuration.line:
            replica = self.replicas[member.address]
            replica.machine.on_request(NOW, Configured(member, configuration))
            self._settle()

    def _publish(self, name: str, *payloads: str) -> None:
        self._ticket += 1
        batch = Batch.build(STREAM, [payload.encode() for payload in payloads])
        self.replicas[name].machine.on_request(NOW, Publish(self._ticket, batch))

    def _sync(self, name: str) -> None:
        replica = self.replicas[name]
        for stream in replica.disk.streams():
            replica.disk.upto[stream] = replica.disk.counter(stream)
            replica.machine.on_request(NOW, Synced(stream, replica.disk.upto[stream]))

    def _persisted(self, name: str) -> None:
        replica = self.replicas[name]
        waits, replica.waits = replica.waits, []
        for each in waits:
            replica.machine.on_persisted(NOW, each)

    def _pass(self, sender: str, to: str, count: str = "1") -> None:
        mail = self._mail.get((sender, to), deque())
        for _ in range(len(mail) if count == "all" else int(count)):
            self._deliver(sender, to)

    def _flow(self) -> None:
        while places := [place for place, mail in self._mail.items() if mail]:
            self._deliver(*places[0])

    def _deliver(self, sender: str, to: str) -> None:
        message = self._mail[sender, to].popleft()
        self.replicas[to].machine.on_message(NOW, Address(sender), message)
        self._settle()

    def _ring(self, name: str, timer: str) -> None:
        self.replicas[name].machine.on_timer(NOW, timer)

    def _break(self, one: str, other: str) -> None:
        both = ((one, other), (other, one))
        for place in both:
            self._mail.pop(place, None)
        for sender, to in both:
            self.replicas[to].machine.on_link_down(NOW, Address(sender))
            self._settle()

    def _lease(self, name: str, held: str) -> None:
        self.replicas[name].leased = held != "no"

    def _forget(self, name: str) -> None:
        before = self.replicas[name]
        self._lives[name] += 1
        self.replicas[name] = Replica(self, name, before.disk.survived(), before.saved)
        self._mail = {place: mail for place, mail in self._mail.items() if name not in place}

    def _reset(self, name: str) -> None:
        """The application has wiped the stream, as it was told to."""
        replica = self.replicas[name]
        replica.disk._streams.pop(STREAM, None)
        replica.disk.upto.pop(STREAM, None)
        replica.machine.on_request(NOW, WasReset(STREAM))

    def _settle(self) -> None:
        """Writes down what went out. A timer of no time runs out at once."""
        while any(replica.context.outputs for replica in self.replicas.values()):
            for replica in self.replicas.values():
                outputs, replica.context.outputs = replica.context.outputs, []
                gathers = False
                for kind, *what in outputs:
                    gathers = gathers or (kind == "timer" and what[0] == GATHER)
                    self._note(replica, kind, what)
                if gathers:
                    replica.machine.on_timer(NOW, GATHER)

    def _note(self, replica: Replica, kind: str, what: list[Any]) -> None:
        name = replica.name
        match kind:
            case "send" | "cast":
                to, message = what
                self._mail.setdefault((name, str(to)), deque()).append(message)
                self.lines.append(f"{name} -> {to}  {shown(message)}")
            case "deliver":
                self.lines.append(f"{name} delivers {shown(what[0])}")
            case "persist":
                replica.saved.append(what[0])
                self.lines.append(f"{name} persists {shown(decode(what[0]))}")
            case "when persisted":
                replica.waits.append(what[0])
            case "trace":
                self.lines.append(f"{name} notes: {what[0]}")
