"""What a replica knows of its chain from one life to the next: what it read in the coordinator, and what it
has of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from qanat.protocols.chain.configuration import Configuration, Member, Registration
from qanat.protocols.chain.records import Began, Forgot, Had, Joined, Record, Seen

if TYPE_CHECKING:
    from qanat.protocols.chain.flow import ChainHistory


class Knowledge:
    """`record` writes down; nothing that is sent after it leaves before it is on disk."""

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self.kept = False
        """This disk has what it stored in an earlier life as a member."""
        self.held = 0
        self.since = 0
        self.claim: Configuration | None = None
        self.had: dict[int, int] = {}
        """How much of each stream was on disk for certain, when that was last written down."""
        self.short: list[tuple[int, int, int]] = []
        """Streams of which less is there than was: stream, how much is, how much was."""
        self.promised: tuple[int, int] = (0, 0)
        """Epoch and id of the highest configuration that was read, one that recovers among them."""

    def load(self, record: Record) -> None:
        match record:
            case Joined():
                self.kept, self.held = True, record.incarnation
            case Forgot():
                self.kept = False
                self.had.pop(record.stream, None)
            case Had():
                self.had = dict(record.marks)
            case Began():
                self.since = record.incarnation
            case Seen():
                self._take(record.configuration)
            case _:
                pass

    def begin(self, me: Member, empty: bool) -> None:
        """Before it registers for the first time with this disk, a life writes down that nothing is known
        from before it."""
        if empty and not self.since:
            self.since = me.incarnation
            self._record(Began(me.incarnation))

    def join(self, me: Member, epoch: int) -> None:
        """From now on it has all that counts in the chain, and must be able to say so in a later life."""
        if not self.kept or self.held < me.incarnation:
            self.kept, self.held = True, me.incarnation
            self._record(Joined(epoch, me.incarnation))

    def forget(self, stream: int) -> None:
        self.kept = False
        self.had.pop(stream, None)
        self._record(Forgot(stream))

    def measure(self, history: ChainHistory) -> None:
        """At the start: an older copy of a log, or one that lost its end, vouches for nothing, and catches up
        behind others."""
        for stream, was in sorted(self.had.items()):
            there = history.counter(stream)
            if there < was and history.synced(stream) is not None:
                self.short.append((stream, there, was))
        for stream, _, _ in self.short:
            self.forget(stream)

    def note_had(self, streams: Iterable[int], history: ChainHistory) -> None:
        """Now and then."""
        marks = {stream: upto for stream in streams if (upto := history.synced(stream))}
        if marks != self.had:
            self.had = marks
            self._record(Had(tuple(sorted(marks.items()))))

    def note(self, configuration: Configuration) -> None:
        """It was read in the coordinator. Written down before anybody acts in it, and once more when it was
        taken up."""
        if self._take(configuration):
            self._record(Seen(configuration))

    def _take(self, configuration: Configuration) -> bool:
        epoch = configuration.epoch
        news = epoch > self.promised[0]
        if news:
            self.promised = (epoch, configuration.id)
        if not configuration.recovering:
            known = (0, False) if self.claim is None else (self.claim.epoch, self.claim.confirmed)
            if (epoch, configuration.confirmed) > known:
                self.claim, news = configuration, True
        return news

    @property
    def newest_session(self) -> int:
        """The highest number of a session that it knows of, whosever."""
        claim = self.claim
        members = () if claim is None else (*claim.line, *claim.before, *claim.needed)
        return max(self.held, self.since, *(member.incarnation for member in members), 0)

    def registration(self, me: Member) -> Registration:
        return Registration(me, self.kept, self.held, self.since, self.claim, self.promised[0])
