"""What a chain is at any time, and how it may change.

The configuration lies in the coordinator and changes only by compare-and-set, always to the next epoch. Any
replica may propose the change; `decide` is a function, so all would propose the same.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from qanat.kernel import Address

LINEAGE_MAX = 64
"""Configurations before one that are named in it. What is older than that is not told apart."""


class Member(msgspec.Struct, frozen=True, order=True):
    """One life of a replica: its session's number tells it from earlier ones, which can never come back."""

    address: str
    incarnation: int

    def at(self) -> Address:
        return Address(self.address)


class Configuration(msgspec.Struct, frozen=True):
    epoch: int
    replicas: tuple[Member, ...]
    """In order: head first, tail last. Never empty."""
    joining: Member | None = None
    """Catches up behind the tail; holds nothing that counts yet."""
    wary: bool = False
    """The tail before may not know yet that it is out: the new one waits for its lease to run out."""
    failed: Member | None = None
    """Who was last reported as failed; others go first when the chain needs one more."""

    confirmed: bool = False
    """Its head has taken it up. Before that nothing is acknowledged or shown in this epoch."""
    before: tuple[Member, ...] = ()
    """Members of the last epoch that was confirmed: while this one is not, each of them has all that
    counts."""

    id: int = 0
    """Drawn by who proposed it: so two of one epoch are told apart, should a coordinator ever give an epoch
    twice."""
    lineage: tuple[tuple[int, int], ...] = ()
    """Epoch and id of each one before it, the latest last; bounded."""
    recovering: bool = False
    """The coordinator had forgotten what replicas know. These are the replicas of the highest that was known,
    nobody serves, and it is found out whether anybody knows more."""
    needed: tuple[Member, ...] = ()
    """While recovering: who must have been asked, and may have been asked by another session than this."""

    @property
    def head(self) -> Member:
        return self.replicas[0]

    @property
    def tail(self) -> Member:
        return self.replicas[-1]

    @property
    def line(self) -> tuple[Member, ...]:
        """The replicas, and behind the tail whoever is joining."""
        return self.replicas if self.joining is None else (*self.replicas, self.joining)

    def line_has(self, member: Member) -> bool:
        return not self.recovering and member in self.line

    def follower(self, member: Member) -> Member | None:
        """Whom `member` forwards to."""
        line = self.line
        at = line.index(member) + 1
        return line[at] if at < len(line) else None

    def leader(self, member: Member) -> Member | None:
        """From whom `member` gets events; none for the head."""
        at = self.line.index(member)
        return self.line[at - 1] if at else None

    def after(self, **changes: Any) -> "Configuration":
        """The next epoch: this one but for these fields, and not confirmed yet."""
        before = self.replicas if self.confirmed else self.before
        lineage = (*self.lineage, (self.epoch, self.id))[-LINEAGE_MAX:]
        return msgspec.structs.replace(
            self,
            epoch=self.epoch + 1,
            confirmed=False,
            before=before,
            lineage=lineage,
            recovering=False,
            needed=(),
            **changes,
        )


class Registration(msgspec.Struct, frozen=True):
    """What a replica says of itself in its ephemeral node."""

    member: Member
    kept: bool
    """It has what it stored in earlier lives (as far as it was synced); False for a new or emptied disk."""
    held: int = 0
    """The last of its incarnations that had a place in the chain, and with it all that counted then."""
    since: int = 0
    """The first of its incarnations that this disk remembers. What an earlier one knew is lost."""
    claim: Configuration | None = None
    """The highest configuration that it ever read: it lay in the coordinator, whatever lies there now."""
    promised: int = 0
    """The highest epoch that it ever read of. It never acts in a lower one."""

    def has_what(self, member: Member) -> bool:
        """Whether it has what that earlier life of it had as a member."""
        return self.kept and (not self.held or self.held >= member.incarnation)

    def remembers(self, member: Member) -> bool:
        """Whether it would know what that earlier life of it knew."""
        return self.since <= member.incarnation


class CaughtUp(msgspec.Struct, frozen=True):
    """The token: in this epoch the tail has stopped serving, and `member` has all that it ever
    acknowledged."""

    epoch: int
    member: Member


class Failed(msgspec.Struct, frozen=True):
    """In this epoch `member` does not answer its predecessor."""

    epoch: int
    member: Member


def newest_of(registered: Iterable[Registration]) -> dict[str, Registration]:
    """The last life of each replica, by its address."""
    return {each.member.address: each for each in sorted(registered, key=lambda one: one.member)}


encode = msgspec.msgpack.Encoder().encode
decode_configuration = msgspec.msgpack.Decoder(Configuration).decode
decode_registration = msgspec.msgpack.Decoder(Registration).decode


def decide(
    now: Configuration,
    registered: Iterable[Registration],
    wanted: int | None,
    reports: Iterable[CaughtUp | Failed] = (),
) -> Configuration | None:
    """The next configuration, or None if this one should stay.

    Removal first, one thing at a time: each epoch differs from the one before by who is gone, or by who came.
    `wanted` is the length that the chain shall have; None if that is for another to say.
    """
    newest = newest_of(registered)
    reports = [report for report in reports if report.epoch == now.epoch]
    failed = {report.member for report in reports if isinstance(report, Failed)}

    def lives(member: Member) -> bool:
        return member.address in newest and newest[member.address].member == member

    def stays(member: Member) -> bool:
        return lives(member) and (member not in failed or member == now.head)

    # If only such are left as were reported, whoever reported them is gone itself: each has all that counts,
    # and goes on.
    left = tuple(filter(stays, now.replicas)) or tuple(filter(lives, now.replicas))
    joining = now.joining if now.joining is not None and stays(now.joining) else None
    last_failed = next((report.member for report in reports if isinstance(report, Failed)), now.failed)
    if not left:
        return _restart(now, newest)
    if left != now.replicas or joining != now.joining:
        wary = now.wary if now.tail in left else now.wary or lives(now.tail)
        return now.after(replicas=left, joining=joining, wary=wary, failed=last_failed)
    if joining is not None and wanted is not None and len(left) >= wanted:
        return now.after(joining=None)
    for report in reports:
        if isinstance(report, CaughtUp) and report.member == joining:
            return now.after(replicas=(*left, joining), joining=None, wary=False)
    if wanted is None or joining is not None:
        return None
    if len(left) > wanted and now.confirmed:
        return _without_one(now)
    if len(left) < wanted:
        names = {member.address for member in left}
        candidates = sorted(
            (each.member for each in newest.values() if each.member.address not in names),
            key=lambda member: (now.failed is not None and member.address == now.failed.address, member),
        )
        if candidates:
            return now.after(joining=candidates[0])
    return None


def _without_one(now: Configuration) -> Configuration:
    """The chain is longer than it shall be. Whoever goes, those who stay have all that counts, and go on in
    their order.

    It is the one whose name comes last, since that is the one that an operator takes away: to remove another
    would shorten the chain twice. It stands by, and the others are to it as to any that was removed alive: if
    it was the tail, the new one waits for its lease.
    """
    gone = max(now.replicas, key=lambda member: (len(member.address), member.address))
    left = tuple(member for member in now.replicas if member != gone)
    return now.after(replicas=left, wary=now.wary or gone == now.tail)


def _restart(now: Configuration, newest: dict[str, Registration]) -> Configuration | None:
    """Every member is gone. Each of them had all that was acknowledged or shown, and so had each member of
    the last epoch that was confirmed, if this one is not: the first that is back with what it stored goes on
    alone, and the others join it. One that lost its disk must not be taken, so we may have to wait. A tail
    that was removed alive may still hold its lease, if it was a moment ago."""
    for member in now.replicas if now.confirmed else (*now.replicas, *now.before):
        back = newest.get(member.address)
        if back is not None and back.has_what(member):
            return now.after(replicas=(back.member,), joining=None)
    return None
