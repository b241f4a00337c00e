"""Which processes are dead: nobody listens any more where they did.

A replica listens from before its session begins until after it has ended it. So a refusal says that whoever
listened there before is dead, or has given its session up. But the news may be late, after another process
has begun at the same address. Dials follow each other, so the second refusal in a row since a process was
heard of is about that one, or a later one.
"""

from collections.abc import Iterable

from qanat.kernel import Address
from qanat.protocols.chain.configuration import Member


class Witness:
    """What this replica has seen of the deaths of others."""

    def __init__(self) -> None:
        self._once: dict[Address, Member] = {}
        """Who was known to have been there, when a dial was refused for the first time."""
        self.dead: dict[Member, None] = {}

    def refused(self, address: Address, registered: Iterable[Member]) -> bool:
        """A dial was; `registered` are all members that are known. True if somebody is known to be dead since
        then."""
        there = [member for member in registered if member.at() == address]
        newest = max(there, default=None)
        if newest is None:
            self._once.pop(address, None)
            return False
        known = self._once.get(address)
        self._once[address] = newest
        if known != newest or newest in self.dead:
            return False
        self.dead.update(dict.fromkeys(there))
        return True

    def still(self, registered: Iterable[Member]) -> list[Member]:
        """The dead that are registered still; the others are forgotten."""
        there = set(registered)
        self.dead = {member: None for member in self.dead if member in there}
        return list(self.dead)
