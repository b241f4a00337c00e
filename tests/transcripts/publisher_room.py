"""A publisher and its subscribers, of which a transcript says when what is read and who is told.

join s1 [application]    an instance comes
assign                   shards are given out, and flows get on
read 1a 2b 3a            the read that is under way brings updates: sequence and shard
read                     the read that is under way brings nothing
lose 9                   the log no longer has what comes before 9
handle s1                s1 is done with all that it was sent
mark                     what is done is written down, and told
alive s1                 a sign of life
gone s1                  the channel breaks
ring NAME                a timer runs out
again                    the publisher is started again, with what it persisted
"""

from __future__ import annotations

import re
from typing import Any

from tests.transcripts.transcript import shown
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.records import Record
from qanat.protocols.publisher.records import decode as decoded


class PublisherRoom:
    def __init__(self) -> None:
        self.journal: list[bytes] = []
        self.lines: list[str] = []
        self._desk = self._new()
        self._drain()
        self.lines.clear()

    def _new(self) -> Desk:
        return Desk(
            PublisherConfig(),
            list(self.journal),
            cache=ApplicationConfig(start="0:0"),
            search=ApplicationConfig(start="0:0"),
        )

    def said(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def do(self, words: list[str]) -> None:
        command, *rest = words
        getattr(self, f"_{command}")(*rest)
        self._drain()

    def _join(self, name: str, application: str = "cache") -> None:
        self._desk.join(name, application)

    def _assign(self) -> None:
        self._desk.settle()

    def _read(self, *updates: str) -> None:
        rows = []
        for update in updates:
            found = re.fullmatch(r"(\d+)(\w+)", update)
            assert found is not None, update
            rows.append(row(int(found[1]), found[2]))
        self._desk.read(*rows)

    def _lose(self, upto: str) -> None:
        self._desk.lose(Position(int(upto)))

    def _handle(self, name: str) -> None:
        self._desk.handle_all(name)

    def _mark(self) -> None:
        for _ in range(8):  # it looks several times for each datamarker
            self._desk.timer("mark")

    def _alive(self, name: str) -> None:
        self._desk.alive(name)

    def _gone(self, name: str) -> None:
        self._desk.machine.on_link_down(NOW, Address(name))

    def _ring(self, name: str) -> None:
        self._desk.timer(name)

    def _again(self) -> None:
        self._desk = self._new()

    def _drain(self) -> None:
        outputs, self._desk.context.outputs = self._desk.context.outputs, []
        for kind, *what in outputs:
            self._note(kind, what)

    def _note(self, kind: str, what: list[Any]) -> None:
        match kind:
            case "send":
                to, message = what
                self.lines.append(f"-> {to}  {re.sub(r'session=[0-9]+ ?', '', shown(message))}")
            case "deliver":
                self.lines.append(f"delivers {shown(what[0])}")
            case "persist":
                self.journal.append(what[0])
                record: Record = decoded(what[0])
                self.lines.append(f"persists {shown(record)}")
