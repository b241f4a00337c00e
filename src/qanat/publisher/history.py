"""Whether a reader of the log reads the history that was read before, wherever that was: on this server or on
a replica, in this life or an earlier one.

A caravan says with each read what those aboard saw last, at its own place and ahead of it. The reader is
sought to the last of what lies behind, which it compares (`Expecting`); what comes on the way is compared
here. Where nothing is to be found between such an update and the place up to which it was the last one,
something that is there is of another history too.
"""

from typing import NamedTuple

from qanat.capture.continuity import Expecting, Mark, agrees, mark_at, unpacked
from qanat.capture.errors import OtherLog
from qanat.capture.reader import LogReader, Lost
from qanat.capture.updates import Updates
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.protocols.publisher.reading import ReadLog
from qanat.protocols.publisher.witness import Witness

_KNOWN = 4_096
"""Marks that are remembered to be in the log; one that was forgotten is compared again."""


class Disputed(LocalError):
    """The log has not what this witness saw."""

    def __init__(self, seen: Witness, what: str) -> None:
        super().__init__(what)
        self.seen = seen


class Expected(NamedTuple):
    seen: Witness
    mark: Mark


class History:
    """Of one reader."""

    def __init__(self) -> None:
        self._known: dict[bytes, None] = {}
        """What the log was seen to have since the reader was sought."""
        self._behind: Expected | None = None
        """What the reader was sought to, until it has come to where it was asked to begin."""
        self._doubtful: list[Witness] = []
        """Whoever is at the same place, and cannot have seen what was there if that is in the log."""
        self._ahead: dict[Witness, Mark] = {}
        self._met: dict[Witness, None] = {}
        """Those of them whose update was found, and after which nothing may come for a while."""

    def knows(self, mark: bytes) -> None:
        """It has just been read."""
        if mark:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[mark] = None

    def covers(self, asked: ReadLog) -> bool:
        """Whether all that is expected is known, or was looked for in what was read since the reader was
        sought."""
        return all(each.mark in self._known or each in self._ahead for each in asked.seen)

    def must_seek(self, asked: ReadLog) -> bool:
        """Whether something is expected that lies behind, and was not looked for."""
        unknown = [each for each in asked.seen if each.mark not in self._known and each not in self._ahead]
        return any(unpacked(each.mark).position <= asked.after for each in unknown)

    def seek(self, reader: LogReader, asked: ReadLog) -> None:
        self._known.clear()
        self._ahead.clear()
        self._met.clear()
        expected = [Expected(each, unpacked(each.mark)) for each in asked.seen]
        behind = [each for each in expected if each.mark.position <= asked.after]
        last = max(behind, key=lambda each: (each.mark.position, each.seen.upto), default=None)
        if last is None or not isinstance(reader, Expecting):
            self._behind, self._doubtful = None, []
            reader.seek(asked.after)
        else:
            self._behind = last
            self._doubtful = [each.seen for each in behind if _contradict(each, last)]
            reader.seek(last.mark.position)
            reader.expect(last.mark)
        for each in behind:  # of several that agree, the last stands for those before it
            self.knows(each.seen.mark)

    def read(self, reader: LogReader, asked: ReadLog, wait_s: float) -> Updates | Lost:
        """What comes after `asked.after`; raises `Disputed`."""
        if isinstance(reader, Expecting):
            for each in asked.seen:
                if each.mark not in self._known:
                    self._ahead[each] = unpacked(each.mark)
        try:
            found = reader.read(asked.rows, wait_s)
        except OtherLog as error:
            if self._behind is None:  # something that nobody was given yet
                raise
            raise Disputed(self._behind.seen, error.what) from error
        if isinstance(found, Lost):
            if self._behind is None:
                return found
            self._behind = None  # the log no longer has what was to be compared
            if found.upto > asked.after:
                return found._replace(after=asked.after)
            reader.seek(asked.after)
            return self.read(reader, asked, wait_s)
        if self._behind is not None:
            found = self._come_by(found, self._behind, asked.after, reader.source)
        for seen, mark in list(self._ahead.items()):
            self._look_for(found, Expected(seen, mark), reader.source)
        return found

    def _come_by(self, found: Updates, last: Expected, after: Position, log: str) -> Updates:
        self._refuse_between(found, last, log)
        if found.upto is not None and found.upto >= max(after, last.seen.upto):
            self._behind = None
            if self._doubtful:
                raise Disputed(self._doubtful[0], f"{_other(log)} at {last.mark.position} it has {last.mark}")
        upto = None if found.upto is None else max(found.upto, after)
        return Updates(found.after(after).runs, upto)

    def _look_for(self, found: Updates, each: Expected, log: str) -> None:
        seen, mark = each
        if found.upto is None or found.upto < mark.position:
            return
        if seen not in self._met:
            there = mark_at(found, mark.position)
            if there is None or not agrees(mark, there):
                raise Disputed(
                    seen,
                    f"{_other(log)} at {mark.position} it has {there or 'no update'}, where there was {mark}",
                )
            self._met[seen] = None
        self._refuse_between(found, each, log)
        if found.upto >= seen.upto:
            del self._ahead[seen], self._met[seen]
            self.knows(seen.mark)

    def _refuse_between(self, found: Updates, each: Expected, log: str) -> None:
        """Between the last update and the place up to which it was the last one there is nothing."""
        seen, mark = each
        rest = found.after(mark.position).runs
        if rest and rest[0].position(0) <= seen.upto:
            where = f"where there was none between {mark.position} and {seen.upto}"
            raise Disputed(seen, f"{_other(log)} it has an update at {rest[0].position(0)}, {where}")


def _contradict(one: Expected, last: Expected) -> bool:
    """Whether it was at the place of the last one, and saw another update there, or none."""
    return one.seen.upto >= last.mark.position and not agrees(one.mark, last.mark)


def _other(log: str) -> str:
    return f"the log {log} is not the one that was read before:"
