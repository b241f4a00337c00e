"""A copy as a holder of parts: what is asked of its publisher, and which of several copies is preferred."""

import zlib
from collections.abc import Mapping
from typing import Protocol

from qanat.events.position import Position
from qanat.protocols.publisher.records import Kept

Part = tuple[str, int]
"""An application and one of its parts."""


class Holder(Protocol):
    """The publisher, as far as it is asked here."""

    def acquired(self, part: Part, kept: Kept, *, clean: bool, outlasts_us: int) -> None:
        """`outlasts_us`: how long leases of owners before may last, unless it was given by them."""

    def waits(self, part: Part) -> bool:
        """Whether leases of owners before may not be over."""

    def lost(self, part: Part) -> None: ...
    def begins(self, part: Part) -> Kept | None:
        """Where a new application begins; None: not known yet, ask again."""

    def state(self, part: Part) -> Kept: ...
    def needs(self, part: Part) -> tuple[Position, Position]:
        """The first and the last of its datamarkers."""

    def released(self, part: Part) -> bool:
        """Nobody shall be served from it any more; True once that is so."""

    def keeps(self, part: Part) -> None:
        """It stays here after all."""

    def troubled(self, part: Part, why: str) -> None:
        """It shall have no more shards, for its record would become too large, or is; or it cannot be served
        here. Empty: that is over."""


def preferred(part: Part, copies: tuple[str, ...], there: Mapping[str, str]) -> str | None:
    """Of the copies that are there (by node, with their addresses): the first that the application names;
    if it names none, by a hash, so that parts spread, and stay where they are when another copy comes or
    goes."""
    newest: dict[str, str] = {}
    for name in sorted(there, key=lambda each: int(each.rpartition("@")[2])):
        newest[there[name]] = name
    if copies:
        return next((newest[copy] for copy in copies if copy in newest), None)
    best = max(
        newest,
        key=lambda address: (zlib.crc32(f"{part[0]}/{part[1]}/{address}".encode()), address),
        default=None,
    )
    return None if best is None else newest[best]
