"""How far each application has each of its shards, by what it was handed: nothing may be missing in
between."""

import re
from typing import Protocol

from qanat.checks.publisher_log import Row, SimLog, positions_in
from qanat.checks.publisher_tables import Key, key_of, table_at
from qanat.events.position import Position
from qanat.protocols.publisher.config import SNAPSHOT, ApplicationConfig
from qanat.protocols.publisher.messages import Loss, Notice, Token, Updates
from qanat.protocols.publisher.routing import UNSHARDED, base_shard, part_of
from qanat.protocols.publisher.subscriber import Handed
from qanat.sim import SimNode

Session = tuple[str, int, str, int]
"""Subscriber, its life, publisher, session."""


class Told(Protocol):
    """What a ledger needs to know of the world."""

    log: SimLog
    applications: dict[str, ApplicationConfig]

    @property
    def parts(self) -> int: ...
    def begins(self, application: str) -> Position | None: ...


def session_of(node: SimNode, handed: Handed) -> Session:
    return (node.address, node.life, handed.publisher, handed.session)


class Shard:
    """One shard of one application: the updates that it should get, and how many of them it has."""

    def __init__(self, begins: Position, *, known: bool) -> None:
        self.begins, self.known = begins, known
        """Once it got an update of its own. What concerns every shard concerns it before that only by
        chance."""
        self.wide: set[Position] = set()
        self.expected: list[Position] = []
        self.looked = 0
        """Rows of the log that were looked at."""
        self.has = 0

    @property
    def next(self) -> Position | None:
        """The first that it should have got."""
        while not self.known and self.has < len(self.expected) and self.expected[self.has] in self.wide:
            self.has += 1
        return self.expected[self.has] if self.has < len(self.expected) else None


class Ledger:
    def __init__(self, told: Told) -> None:
        self._told = told
        self.shards: dict[tuple[str, str], Shard] = {}
        self.sessions: dict[Session, dict[str, None]] = {}
        """The shards that each session of a subscriber has, by its notices."""
        self._unknown: dict[tuple[str, str], list[tuple[Position, Position]]] = {}
        """Losses that were told for shards that were not known then."""
        self._wants: dict[str, str | None] = {}
        self._rows: dict[str, dict[Key, Position]] = {}
        """Of a snapshot: of each row the latest state that came."""
        self._tables: dict[str, dict[str, list[Row]]] = {}
        """What an application should get of a snapshot, by shard: at least as new as this."""

    def shard(self, application: str, shard: str) -> Shard | None:
        """Brought up to date with the log; None if the application has not begun."""
        found = self.shards.get((application, shard))
        if found is None:
            begins = self._told.begins(application)
            if begins is None:
                return None
            found = self.shards[application, shard] = Shard(begins, known=shard == UNSHARDED)
        rows, colour = self._told.log.rows, self._colour(application)
        while found.looked < len(rows):
            row = rows[found.looked]
            found.looked += 1
            if row.shard not in (None, shard) or row.position <= found.begins:
                continue
            if colour in (None, row.colour):
                found.expected.append(row.position)
                if row.shard is None:
                    found.wide.add(row.position)
        return found

    def _colour(self, application: str) -> str | None:
        if application not in self._wants:
            where = self._told.applications[application].where
            match = re.fullmatch(r"colour = '?(\w+)'?", where)
            self._wants[application] = match[1] if match else None
        return self._wants[application]

    # Items

    def take(self, node: SimNode, handed: Handed) -> str:
        """The application has it; what is wrong with that, if anything."""
        application, session, item = node.group, session_of(node, handed), handed.item
        shards = self.sessions.setdefault(session, {})
        match item:
            case Notice():
                for shard in item.shards:
                    if shard not in shards:
                        shards[shard] = None
                    self._known(application, shard)
            case Token():
                for mark in item.marks:
                    for shard in mark.shards if item.last else ():
                        shards.pop(shard, None)
            case Loss():
                for shard in item.shards:
                    self._lost(application, shard, item.after, item.upto)
            case Updates():
                return self._updates(application, item, shards)
        return ""

    def _updates(self, application: str, item: Updates, shards: dict[str, None]) -> str:
        for position, shard, row in rows_of(item, self._told.log):
            if row is not None:
                self._read(application, row)
                continue
            for each in item.only or tuple(shards) if shard is None else (shard,):
                problem = self._have(application, each, position)
                if problem:
                    return problem
        return ""

    def _have(self, application: str, shard: str, position: Position) -> str:
        found = self.shard(application, shard)
        if found is None or position <= found.begins:
            return f"{application} gets {position} of shard {shard!r} from before it began"
        lacks = self._row_missing(application, shard)
        if lacks is not None:
            return (
                f"{application} gets {position} of shard {shard!r}, but of the snapshot it never got {lacks}"
            )
        following = found.next
        if following is not None and position > following:
            return f"{application} gets {position} of shard {shard!r}, but it never got {following}"
        if position == following:
            found.has += 1
            found.known = found.known or position not in found.wide
        elif position not in found.expected:
            return f"{application} gets {position} of shard {shard!r}, which it did not ask for"
        return ""

    def _lost(self, application: str, shard: str, after: Position, upto: Position) -> None:
        part = part_of(shard, self._told.parts)
        if shard == base_shard(part, self._told.parts):
            self._unknown.setdefault((application, shard), []).append((after, upto))
        found = self.shard(application, shard)
        if found is not None:
            _pass_over(found, after, upto)

    def _known(self, application: str, shard: str) -> None:
        """What was lost before the shard was known counts for it too."""
        found = self.shard(application, shard)
        base = base_shard(part_of(shard, self._told.parts), self._told.parts)
        for after, upto in self._unknown.get((application, base), ()):
            if found is not None:
                _pass_over(found, after, upto)

    def _read(self, application: str, row: Row) -> None:
        key, rows = key_of(row), self._rows.setdefault(application, {})
        if key is not None:
            rows[key] = max(row.position, rows.get(key, row.position))

    def _row_missing(self, application: str, shard: str) -> Row | None:
        """Of the snapshot with which an application begins, a row that it did not get as it was then, or
        later."""
        begins = self._told.begins(application)
        if begins is None or self._told.applications[application].start != SNAPSHOT:
            return None
        if application not in self._tables:
            self._tables[application] = {}
            for row in table_at(self._told.log, begins).values():
                if self._colour(application) in (None, row.colour):
                    self._tables[application].setdefault(str(row.shard), []).append(row)
        came = self._rows.get(application, {})
        for row in self._tables[application].get(shard, ()):
            key = key_of(row)
            if key is not None and (key not in came or came[key] < row.position):
                return row
        return None

    def missing(self, application: str, shard: str) -> Position | None:
        """What it should have got, and neither got nor was told to be lost."""
        if self._row_missing(application, shard) is not None:
            return self._told.begins(application)
        self._known(application, shard)
        found = self.shard(application, shard)
        return None if found is None else found.next


def _pass_over(shard: Shard, after: Position, upto: Position) -> None:
    while (following := shard.next) is not None and after < following <= upto:
        shard.has += 1


def rows_of(item: Updates, log: SimLog) -> list[tuple[Position, str | None, Row | None]]:
    """Position and shard of each update, by the log itself; and of a row of a table, which update it is
    of."""
    found: list[tuple[Position, str | None, Row | None]] = []
    for batch in item.batches:
        ops = batch.attributes()["#op"][0].to_pylist()
        payloads = batch.payloads().to_pylist()
        for position, op, payload in zip(positions_in(batch), ops, payloads, strict=True):
            row = _row_at(log, Position.parse(payload.decode()))
            found.append((position, row.shard, row if op == "read" else None))
    return found


def _row_at(log: SimLog, position: Position) -> Row:
    low, high = 0, len(log.rows)
    while low < high:
        middle = (low + high) // 2
        if log.rows[middle].position < position:
            low = middle + 1
        else:
            high = middle
    return log.rows[low]
