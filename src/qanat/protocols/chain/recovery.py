"""What to do when a coordinator has forgotten: replicas that have read more know better, and epochs never go
back.

Every replica writes down the highest configuration that it read, before it acts in it. Whoever confirms an
epoch is a member of the last confirmed one before it (or was joining it). So if every member of the highest
configuration that anybody claims has been asked, and none knows of a higher one, then nothing was ever
acknowledged or shown beyond it.

Asking is a configuration as well (`recovering`), in an epoch above all that anybody promised. A replica that
reads it acts in no lower one from then on, writes that down and says so in its registration, with what it
claims.
"""

import enum
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from qanat.protocols.chain.configuration import (
    CaughtUp,
    Configuration,
    Failed,
    Member,
    Registration,
    decide,
    newest_of,
)


class Standing(enum.Enum):
    """What a replica's claim is beside what lies in the coordinator."""

    KNOWN = enum.auto()
    """The coordinator went on from there."""
    AHEAD = enum.auto()
    """The coordinator has forgotten it."""
    APART = enum.auto()
    """It has forgotten it, and the chain has gone on without it: what was acknowledged there is not in the
    chain's history."""


def standing(claim: Configuration, now: Configuration) -> Standing:
    mine = (claim.epoch, claim.id)
    path = now.lineage if now.recovering else (*now.lineage, (now.epoch, now.id))
    if not path or mine in path:
        return Standing.KNOWN if mine in path else Standing.AHEAD
    tip = path[-1]
    if claim.epoch <= tip[0]:
        return Standing.APART if path[0][0] <= claim.epoch else Standing.KNOWN
    theirs = (*claim.lineage, mine)
    forked = tip not in theirs and theirs[0][0] <= tip[0]
    # One step beyond what the claim knows, that nobody took up: nothing was acknowledged there.
    idle = not now.confirmed and len(path) > 1 and path[-2] in theirs
    return Standing.APART if forked and not now.recovering and not idle else Standing.AHEAD


def recover(base: Configuration, above: int) -> Configuration:
    """Ask everybody who could know of more than `base`, in an epoch above that one."""
    asked = {member.address: member for member in base.before} if not base.confirmed else {}
    asked |= {member.address: member for member in base.line}
    return Configuration(
        max(above, base.epoch) + 1,
        base.replicas,
        wary=True,
        before=base.replicas,
        lineage=(*base.lineage, (base.epoch, base.id)),
        recovering=True,
        needed=tuple(asked[address] for address in sorted(asked)),
    )


class Absent(NamedTuple):
    """Somebody who may know more, and why it cannot be asked."""

    address: str
    emptied: bool
    """It is there, with another disk than it had."""


def absent(
    now: Configuration, newest: Mapping[str, Registration], gone: Collection[str] = ()
) -> list[Absent]:
    """Whom a recovery waits for. An operator may say who is `gone` for ever."""
    base = now.lineage[-1:]
    members: Collection[Member] = now.needed
    for each in newest.values():
        claim = each.claim
        if claim is not None and claim.confirmed and base == ((claim.epoch, claim.id),):
            members = claim.line  # it was taken up, so those before it need not be asked
            break
    found = []
    for member in members:
        back = newest.get(member.address)
        if member.address in gone:
            continue
        if back is None or (back.remembers(member) and back.promised < now.epoch):
            found.append(Absent(member.address, False))
        elif not back.remembers(member):
            found.append(Absent(member.address, True))
    return found


def recovered(
    now: Configuration, newest: Mapping[str, Registration], gone: Collection[str]
) -> Configuration | None:
    """All were asked: the first that has all that counts goes on alone, and the others join it."""
    if absent(now, newest, gone):
        return None
    for member in now.replicas:
        back = newest.get(member.address)
        if back is not None and member.address not in gone and back.has_what(member):
            return now.after(replicas=(back.member,), joining=None)
    if not gone:
        return None
    # Somebody said that all who have everything are gone. Who was in the chain last has most.
    heard = [each for each in newest.values() if each.promised >= now.epoch]
    left = [each for each in heard if each.member.address not in gone] or heard
    best = max(left, key=lambda each: (each.kept, each.held, each.member), default=None)
    return None if best is None else now.after(replicas=(best.member,), joining=None)


def highest(claims: Iterable[Configuration | None]) -> Configuration | None:
    """The one to go on from; of one that was read twice, as it was taken up."""
    known = (claim for claim in claims if claim is not None)
    return max(known, key=lambda claim: (claim.epoch, claim.confirmed), default=None)


def forgotten(now: Configuration, registered: Iterable[Registration], doubted: bool) -> Configuration | None:
    """What must be asked, if anybody registered knows of more than lies in the coordinator."""
    known = list(registered)
    above = max((each.promised for each in known), default=0)
    ahead = highest(
        each.claim for each in known if each.claim is not None and standing(each.claim, now) is Standing.AHEAD
    )
    if ahead is not None:
        return recover(ahead, max(above, now.epoch))
    if above <= now.epoch and not doubted:
        return None
    above = max(above, now.epoch)
    if now.recovering:
        return msgspec.structs.replace(now, epoch=above + 1)
    return recover(now, above)


def next_of(
    now: Configuration,
    registered: Collection[Registration],
    wanted: int | None,
    reports: Iterable[CaughtUp | Failed],
    gone: Collection[str] = (),
    *,
    doubted: bool = False,
) -> Configuration | None:
    """The next configuration, or None if this one should stay. `doubted`: it cannot be the one that came of
    what is known."""
    asked = forgotten(now, registered, doubted)
    if asked is not None:
        return asked
    newest = newest_of(registered)
    if now.recovering:
        return recovered(now, newest, gone)
    new = decide(now, registered, wanted, reports)
    if new is None and gone and not any(lives(member, newest) for member in now.replicas):
        return recover(now, max((each.promised for each in registered), default=0))
    return new


def lives(member: Member, newest: Mapping[str, Registration]) -> bool:
    return member.address in newest and newest[member.address].member == member


def begun(
    me: Member, newest: Mapping[str, Registration], named: Collection[str], gone: Collection[str]
) -> Configuration | None:
    """The first configuration of a coordinator that has none. If anybody claims one, it had one once. If
    nobody does, it is the first of all only if everybody was asked whom the settings name."""
    base = highest(each.claim for each in newest.values())
    above = max((each.promised for each in newest.values()), default=0)
    if base is not None:
        return recover(base, above)
    if unborn(newest, named, gone):
        return None
    kept = {each.member.address for each in newest.values() if each.kept}
    if kept and me.address not in kept:
        return None  # it was about to make the first one when it was stopped, and may not know that it did
    return Configuration(above + 1, (me,))


def unborn(newest: Mapping[str, Registration], named: Collection[str], gone: Collection[str]) -> list[str]:
    """Whom the beginning of a chain waits for."""
    return sorted(address for address in named if address not in newest and address not in gone)


class Waits(NamedTuple):
    """Why a chain does not go on."""

    why: str
    """A sentence without its end."""
    away: tuple[str, ...] = ()
    """Who must come back."""
    emptied: tuple[str, ...] = ()
    """Who came back without what it had."""


def waiting(
    now: Configuration | None,
    newest: Mapping[str, Registration],
    named: Collection[str],
    gone: Collection[str],
) -> Waits | None:
    """Whom the chain waits for, if it does."""
    if now is None:
        away = () if any(each.claim for each in newest.values()) else unborn(newest, named, gone)
        why = "its coordinator knows no chain, and may have forgotten one"
        return Waits(why, tuple(away)) if away else None
    if now.recovering:
        found = absent(now, newest, gone)
        why = "its coordinator has forgotten the chain, and not all were asked who may know more"
    elif not any(lives(member, newest) for member in now.replicas):
        lost = [*now.replicas, *(() if now.confirmed else now.before)]
        found = [
            Absent(address, address in newest) for address in dict.fromkeys(member.address for member in lost)
        ]
        why = "all that were in the chain are gone, and one of them must come back with what it stored"
    else:
        return None
    if not found:
        return None
    return Waits(
        why,
        tuple(each.address for each in found if not each.emptied),
        tuple(each.address for each in found if each.emptied),
    )
