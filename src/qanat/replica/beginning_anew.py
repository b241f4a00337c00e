"""A coordinator that begins anew from the most advanced journal that is left of it: what to do when a
majority forgot, or when one becomes three.

Nothing is removed: what lay in the data folders is moved to `before-begin/<number>` beside it.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from qanat.coordinate.tree import Tree, decode
from qanat.coordinate.tree import compact as compact_tree
from qanat.events.durable import make_folder, move
from qanat.events.errors import LocalError
from qanat.protocols.raft import Kept, begin_from
from qanat.replica.coordinator import ALONE, ENSEMBLE, journal_of
from qanat.replica.damage import JOURNALS
from qanat.runtime.journal import TWINS, CorruptJournal, Journal, is_there
from qanat.runtime.journal_reached import REACHED

BEFORE = "before-begin"


class NoJournal(LocalError):
    """Nothing is left to begin from, and nobody said that it may begin empty."""

    exit_code = 1


class Survivor(msgspec.Struct, frozen=True):
    """A journal that can be read."""

    path: Path
    kept: Kept
    """Of an ensemble's member; as if it had been of one, for a coordinator that was alone."""
    records: list[bytes]
    """Of the tree."""
    rank: tuple[bool, int, int]

    @property
    def about(self) -> str:
        tree = Tree()
        for record in self.records:
            tree.apply(decode(record))
        return f"{self.path}: {tree.zxid} changes, {len(tree.nodes)} nodes, {len(tree.sessions)} sessions"


def survivors(folders: Sequence[Path]) -> tuple[list[Survivor], list[str]]:
    """What is left in these data folders, the most advanced first; and why the rest cannot be read. A member
    that had come without a journal, and was not yet brought up to date, comes after all others."""
    found: list[Survivor] = []
    refused: list[str] = []
    for folder in folders:
        for machine in (ENSEMBLE, ALONE):
            path = journal_of(folder, machine)
            if not is_there(path):
                continue
            try:
                records = _read(path)
            except CorruptJournal as error:
                refused.append(str(error))
                continue
            found += _survivor(path, machine, records)
    return sorted(found, key=lambda each: each.rank, reverse=True), refused


def from_journal(path: Path) -> Survivor:
    """One that was named: a member's, or that of a coordinator that was alone."""
    if not is_there(path):
        raise NoJournal(f"there is no journal {path}")
    found = _survivor(path, path.stem, _read(path))
    if not found:
        raise NoJournal(f"the journal {path} has nothing in it")
    return found[0]


def _read(path: Path) -> list[bytes]:
    journal = Journal(path)
    journal.close()
    return journal.records


def _survivor(path: Path, machine: str, records: list[bytes]) -> list[Survivor]:
    kept = Kept()
    if machine == ALONE:
        if not records:
            return []
        return [Survivor(path, kept, compact_tree(records), (True, 0, 0))]
    kept.load(records)
    if not kept.log.last_index:
        return []
    # Also what was not known to be committed: it may have been, and whoever asked was told that it may.
    of_tree = compact_tree(kept.log.records(kept.log.last_index))
    return [Survivor(path, kept, of_tree, (kept.whole, kept.log.last_term, kept.log.last_index))]


def begin_with(folders: Sequence[Path], members: int, start: Survivor | None) -> None:
    """Makes it the beginning of a coordinator of one or three members, in these data folders of theirs; None:
    it begins empty, and knows that this is no accident."""
    kept, records = (Kept(), compact_tree([])) if start is None else (start.kept, start.records)
    machine = ALONE if members == 1 else ENSEMBLE
    saved = records if machine == ALONE else begin_from(kept, records)
    for folder in folders:
        _set_aside(folder)
        journal = Journal(journal_of(folder, machine), vouched=True)
        journal.write(saved)
        journal.close()


def _set_aside(folder: Path) -> None:
    there = [name for name in (JOURNALS, JOURNALS + TWINS, JOURNALS + REACHED) if (folder / name).exists()]
    if not there:
        return
    number = 1
    while (folder / BEFORE / str(number)).exists():
        number += 1
    target = folder / BEFORE / str(number)
    make_folder(target)
    for name in there:
        move(folder / name, target / name)
