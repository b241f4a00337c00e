"""A member of an ensemble that keeps a log of opaque records: follower, candidate or leader. See
docs/raft.md.

It is a part of a machine, which hands it messages, timers and broken links, and calls `flush` at the end of
its own entry points.
"""

import enum
from collections.abc import Sequence
from typing import Protocol, assert_never

import msgspec

from qanat.kernel import Address, Context, Message, require
from qanat.protocols.raft.config import RaftConfig
from qanat.protocols.raft.election import Election
from qanat.protocols.raft.following import Following
from qanat.protocols.raft.leading import Leading
from qanat.protocols.raft.log import Fold
from qanat.protocols.raft.messages import (
    LEAP_MAX,
    MESSAGES,
    AppendEntries,
    AppendReply,
    InstallReply,
    InstallSnapshot,
    Present,
    RaftMessage,
    RequestVote,
    VoteReply,
)
from qanat.protocols.raft.presence import Presence
from qanat.protocols.raft.records import Standing, Term
from qanat.protocols.raft.seat import Seat

PREFIX = "raft/"
ELECT, CALM, BEAT, CHECK, PRESENT = (
    f"{PREFIX}{name}" for name in ("elect", "calm", "beat", "check", "present")
)


class Role(enum.StrEnum):
    FOLLOWER = "follower"
    LEADER = "leader"


class Office(Protocol):
    """What the owner is told."""

    def on_lead(self, now_us: int, records: Sequence[bytes]) -> None:
        """This member leads, and these records are what was ever committed, or say the same."""

    def on_settled(self, now_us: int) -> None:
        """More is committed, or confirmed, than before."""

    def on_deposed(self) -> None:
        """It leads no more. What it proposed and saw no commit of may be committed all the same."""


class Status(msgspec.Struct, frozen=True):
    """How a member sees its ensemble."""

    role: str
    term: int
    leader: str
    whole: bool
    commit: int
    away: tuple[str, ...]
    forgot: tuple[str, ...]
    """Members, this one too, that do not count yet because their journal was empty or refused."""
    waits: str
    """Why there is no leader, and what to do; empty if there is one, or will be by itself."""


class Raft:
    leading_type = Leading
    election_type = Election
    following_type = Following
    presence_type = Presence

    def __init__(
        self, context: Context, config: RaftConfig, members: Sequence[Address], fold: Fold, office: Office
    ) -> None:
        self._context, self._config, self._office = context, config, office
        self.seat = Seat(context, config, members, fold, context.rng.getrandbits(62) + 1)
        self.presence = self.presence_type(self.seat)
        self._election = self.election_type(self.seat)
        self._following = self.following_type(self.seat)
        self.leading: Leading | None = None
        self.leader: Address | None = None
        self.serves = False
        """It leads, and all that was committed before is committed in its term."""
        self._calm = False
        self._checked = False
        self._now_us = 0

    # For the owner

    def start(self, now_us: int, saved: Sequence[bytes], *, lost: bool = False) -> None:
        """`lost`: there was a journal and it could not be read, so that nothing is saved."""
        self._now_us = now_us
        kept = self.seat.kept
        kept.load(saved)
        self.seat.restored()
        if lost and not saved:
            kept.write(self._context, Standing(whole=False, lost=True))
        self._try_to_begin()
        self._soon()
        self._present()
        self.flush(now_us)

    def propose(self, record: bytes) -> int:
        require(self.leading is not None, "only a leader proposes")
        return self.leading.propose(record) if self.leading is not None else 0

    def confirm(self) -> int:
        require(self.leading is not None, "only a leader asks for a round")
        return self.leading.confirm() if self.leading is not None else 0

    def settled(self, index: int, round_: int) -> bool:
        """Whether that entry is committed and that round confirmed."""
        return self.leading is not None and index <= self.seat.commit and round_ <= self.leading.confirmed

    def flush(self, now_us: int) -> None:
        self._now_us = now_us
        if self.leading is not None:
            self.leading.flush()

    def is_overfull(self) -> bool:
        return self.leading is not None and self.leading.is_overfull()

    def resign(self) -> None:
        self._follow(self.seat.kept.term, None)

    def status(self) -> Status:
        seat = self.seat
        leading = self.leading
        if leading is not None:
            away = tuple(each for each, member in leading.members.items() if member.away)
            forgot = tuple(
                each for each, member in leading.members.items() if member.life and not member.whole
            )
        else:
            away = ()
            forgot = () if seat.kept.whole else (seat.context.address,)
        return Status(
            role=Role.FOLLOWER if leading is None else Role.LEADER,
            term=seat.kept.term,
            leader=self.leader or "",
            whole=seat.kept.whole,
            commit=seat.commit,
            away=away,
            forgot=forgot,
            waits="" if self.leader is not None else self.presence.waits(),
        )

    # Inputs

    def on_message(self, now_us: int, sender: Address, message: Message) -> bool:
        """False if it is not for us."""
        if not isinstance(message, MESSAGES):
            return False
        if sender in self.seat.others and message.term <= self.seat.kept.term + LEAP_MAX:
            self._now_us = now_us
            self._on_message(sender, message)
            self.flush(now_us)
        return True

    def _on_message(self, sender: Address, message: RaftMessage) -> None:
        kept = self.seat.kept
        match message:
            case Present():
                self.presence.on_present(sender, message)
                self._try_to_begin()
            case RequestVote():
                if not message.pre and message.term > kept.term:
                    self._follow(message.term, None)
                calm = self._calm or self.leading is not None
                if self._election.on_request(sender, message, calm=calm) and not message.pre:
                    self._later()
            case VoteReply():
                if not message.granted and message.term > kept.term:
                    self._follow(message.term, None)
                elif self.leading is None and self._election.on_reply(sender, message):
                    self._lead()
            case AppendEntries():
                if self._heed(sender, message.term):
                    self._following.on_append(sender, message)
                else:
                    self._context.send(
                        sender, AppendReply(kept.term, 0, self.seat.life, kept.whole, False, 0)
                    )
            case InstallSnapshot():
                if self._heed(sender, message.term):
                    self._following.on_install(sender, message)
                else:
                    self._context.send(
                        sender, AppendReply(kept.term, 0, self.seat.life, kept.whole, False, 0)
                    )
            case AppendReply() | InstallReply():
                if message.term > kept.term:
                    self._follow(message.term, None)
                elif self.leading is not None and message.term == kept.term:
                    if isinstance(message, AppendReply):
                        self.leading.on_append_reply(sender, message)
                    else:
                        self.leading.on_install_reply(sender, message)
            case _:
                assert_never(message)

    def on_timer(self, now_us: int, name: str) -> bool:
        if not name.startswith(PREFIX):
            return False
        self._now_us = now_us
        if name == CALM:
            self._calm = False
        elif name == ELECT:
            self._stand()
        elif name == PRESENT:
            if self.leader is None or not self.seat.kept.whole:
                self._present()
        elif self.leading is not None:
            if name == BEAT:
                self.leading.flush(beat=True)
                self._context.set_timer(BEAT, self._config.beat_us)
            elif self.leading.has_majority():
                self._context.set_timer(CHECK, self._config.election_us)
            else:
                self.resign()
        self.flush(now_us)
        return True

    def on_link_down(self, now_us: int, peer: Address) -> None:
        if peer not in self.seat.others:
            return
        self._now_us = now_us
        self.presence.on_link_down(peer)
        if self.leading is not None:
            self.leading.on_link_down(peer)
        elif (
            peer == self.leader
        ):  # its process is gone, or the link: the others know better, and are asked first
            self._calm = False
            self._soon()
            self._has_no_leader()
        self.flush(now_us)

    # Roles

    def _soon(self) -> None:
        self._context.set_timer(ELECT, self._context.rng.randrange(self._config.election_us // 4) + 1)

    def _later(self) -> None:
        self._context.set_timer(
            ELECT, self._config.election_us + self._context.rng.randrange(self._config.election_us)
        )

    def _present(self) -> None:
        self.presence.say()
        self._context.set_timer(PRESENT, self._config.election_us // 3)

    def _has_no_leader(self) -> None:
        """Any more. Who is there now is asked anew."""
        self.leader = None
        self.presence.heard.clear()
        self._present()

    def _try_to_begin(self) -> None:
        if self.presence.begins():
            self._context.trace("raft begins from nothing")
            self._soon()

    def _stand(self) -> None:
        """There was no leader for long enough."""
        if self.leading is not None:
            return
        if self.leader is not None:
            self._following.forget()
            self._has_no_leader()
        self._later()
        if self._election.attempt():
            self._lead()

    def _heed(self, sender: Address, term: int) -> bool:
        """Whether it is this term's leader that speaks."""
        if term < self.seat.kept.term or (term == self.seat.kept.term and self.leading is not None):
            return False
        if term > self.seat.kept.term or self.leader != sender:
            self._follow(term, sender)
        self._calm = True
        self._context.set_timer(CALM, self._config.election_us)
        self._later()
        return True

    def _follow(self, term: int, leader: Address | None) -> None:
        kept, was = self.seat.kept, self.leading
        if was is not None:
            was.save()
            self.leading, self.serves = None, False
            self._context.cancel_timer(BEAT)
            self._context.cancel_timer(CHECK)
        if term > kept.term:
            kept.write(self._context, Term(term, ""))
        self._election.end()
        self._following.forget()
        self._later()
        if leader is None and self.leader is not None:
            self._has_no_leader()
        self.leader = leader
        if was is not None:
            self._context.trace("raft deposed", term=was.term)
            self._office.on_deposed()

    def _lead(self) -> None:
        self._context.trace("raft leads", term=self.seat.kept.term)
        self._following.forget()
        self.leader = self._context.address
        self._context.cancel_timer(ELECT)
        self._context.set_timer(BEAT, self._config.beat_us)
        self._context.set_timer(CHECK, 2 * self._config.election_us)
        self.leading = self.leading_type(self.seat, self._on_settled)
        self.leading.confirm()

    def _on_settled(self) -> None:
        leading = self.leading
        if leading is None:
            return
        if self.serves:
            self._office.on_settled(self._now_us)
        elif self.seat.commit >= leading.first:
            self.serves = True
            self._office.on_lead(self._now_us, self.seat.kept.log.records(self.seat.commit))
