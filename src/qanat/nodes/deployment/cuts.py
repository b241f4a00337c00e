"""Which links between regions are cut, in a file: the process of links reads it, at its start and on SIGHUP."""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from qanat.events.durable import replace


class Cuts(msgspec.Struct, frozen=True):
    """Pairs (a, b): nothing passes from region a to region b."""

    pairs: frozenset[tuple[str, str]] = frozenset()

    def cut(self, pairs: Iterable[tuple[str, str]]) -> "Cuts":
        return Cuts(self.pairs | frozenset(pairs))

    def heal(self, pairs: Iterable[tuple[str, str]] | None) -> "Cuts":
        """Without these; without any for None."""
        return Cuts() if pairs is None else Cuts(self.pairs - frozenset(pairs))

    def among(self, regions: Collection[str]) -> "Cuts":
        return Cuts(frozenset((a, b) for a, b in self.pairs if a in regions and b in regions))

    @classmethod
    def load(cls, path: Path) -> "Cuts":
        """None if there is no such file, or it is damaged: then everything passes."""
        try:
            pairs = msgspec.json.decode(path.read_bytes(), type=list[tuple[str, str]])
        except (FileNotFoundError, msgspec.MsgspecError):
            return cls()
        return cls(frozenset(pairs))

    def save(self, path: Path) -> None:
        replace(path, msgspec.json.encode(sorted(self.pairs)), mode=0o600)
