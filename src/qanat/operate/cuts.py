"""Which links between regions are cut, in a file: the process of links reads it, at its start and on
SIGHUP."""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from qanat.events.kept import Damaged, Kept


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
        """None are cut if there is no such file. Raises `Damaged`."""
        data = Kept(path).read()
        try:
            return cls(frozenset(msgspec.json.decode(data or b"[]", type=list[tuple[str, str]])))
        except msgspec.MsgspecError as error:
            raise Damaged(f"{path} is damaged ({error}): restore it from a copy") from None

    def save(self, path: Path) -> None:
        Kept(path, mode=0o600).write(msgspec.json.encode(sorted(self.pairs)))
