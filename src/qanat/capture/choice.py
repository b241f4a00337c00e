"""Some of the updates: by table, and by a filter of the one language."""

import fnmatch
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from qanat.capture.events import batch_of
from qanat.capture.json_text import encode
from qanat.capture.sharding import Sharding
from qanat.capture.updates import Updates
from qanat.events.errors import LocalError
from qanat.events.filters import Filter, evaluate


@dataclass(frozen=True, slots=True)
class Choice:
    """`tables` are patterns as a shell has them (`shop.*`, `orders`), for whole paths or for their last
    parts; none: all."""

    tables: Sequence[str] = ()
    where: Filter | None = None
    sharding: Sharding = field(default_factory=Sharding)

    def __post_init__(self) -> None:
        if self.where is not None and self.where.contextual:
            raise LocalError(
                f"{self.where}: this is for garbage collection; a filter of updates looks at one alone"
            )

    @property
    def mark(self) -> str:
        """The same for the same choice, another for another; empty if everything is chosen."""
        if not self.tables and self.where is None:
            return ""
        where = "" if self.where is None else f"{self.where} by {self.sharding}"  # a filter may be on #S
        return hashlib.sha256(encode([sorted(set(self.tables)), where])).hexdigest()[:12]

    def names(self, path: str) -> bool:
        """Whether a table is among those that were asked for."""
        if not self.tables:
            return True
        pattern = re.compile("|".join(map(fnmatch.translate, self.tables)))
        parts = path.split(".")
        return any(pattern.match(".".join(parts[at:])) for at in range(len(parts)))

    def of(self, updates: Updates) -> Updates:
        """Those that pass; how far the log was read stays."""
        if self.tables:
            updates = Updates([run for run in updates.runs if self.names(run.table.path)], updates.upto)
        if self.where is None or not updates:
            return updates
        passed = evaluate(self.where, batch_of("changes", "changes", updates, self.sharding))
        kept, at = [], 0
        for run in updates.runs:
            mask = passed[at : at + len(run)]
            at += len(run)
            if mask.all():
                kept.append(run)
            elif mask.any():
                kept.append(run.take(mask))
        return Updates(kept, updates.upto)
