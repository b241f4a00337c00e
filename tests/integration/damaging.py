"""Files that are damaged on purpose, each kind in each way, and the page that says what happens then
(docs/damage.md)."""

from __future__ import annotations

import itertools
import logging
import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "damage.md"

HARMS = ("flipped", "cut", "removed", "older copy")
"""A bit of it is another one; its end is missing; it is gone; it is what it was before its last changes."""
ONE, THREE = (0.5,), (0.05, 0.5, 0.98)
"""Where a bit is flipped, in parts of the file's length."""

# What happens
NOTHING = "nothing is lost"
MADE_GOOD = "made good"
REFUSED = "refused"
READER = "who reads there is refused"
ANEW = "begins anew behind the others"
AWAY = "is passed over, and told"
LOST = "LOST IN SILENCE"
NEVER = "never changes"


class Outcome(NamedTuple):
    what: str
    said: str = ""


class Kind(NamedTuple):
    """Files of one kind: `name` for the page, `pattern` of their paths below the world's folder."""

    name: str
    pattern: str
    pick: int = -1
    """Which of those that match is damaged, in their order."""
    places: tuple[float, ...] = ONE
    before: int = 0
    """Where each state is a file of its own: which of them is the older copy."""
    apart: frozenset[str] = frozenset()
    """Harms that are not told from what is allowed, for a reason that the page gives."""

    def of(self, folder: Path) -> list[Path]:
        return [path for path in files(folder) if re.fullmatch(self.pattern, str(path.relative_to(folder)))]


class World:
    """Real code that makes files in a folder, and real code that starts from them."""

    name = ""
    kinds: tuple[Kind, ...] = ()
    linked = ""
    """Pattern of the names of files that are nobody's of ours, and stay the very same."""

    def make(self, folder: Path, older: Callable[[], None]) -> None:
        """Makes the files; calls `older` when all are there and most will change again."""
        raise NotImplementedError

    def look(self, folder: Path) -> Outcome:
        """Starts from the files, and compares with what was promised."""
        raise NotImplementedError


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def unknown(folder: Path, kinds: Iterable[Kind]) -> list[str]:
    """Files that are of none of these kinds: the table has to have them."""
    names = (str(path.relative_to(folder)) for path in files(folder))
    return [name for name in names if not any(re.fullmatch(kind.pattern, name) for kind in kinds)]


class Made:
    """What a world made, to be copied for each damage."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder / "data"
        self._pristine, self._older = folder / "pristine", folder / "older"
        self.folder.mkdir(parents=True)
        world.make(self.folder, lambda: void(shutil.copytree(self.folder, self._older)))
        self.unknown = unknown(self.folder, world.kinds)
        self.folder.rename(self._pristine)

    def undamaged(self) -> Outcome:
        return self._looked(lambda: None)

    def cell(self, kind: Kind, harm: str, place: float, bit: int = 4) -> Outcome:
        """What happens; `place` is where a bit is flipped, or from where on the file is cut, in parts of its
        length."""
        path = kind.of(self._pristine)[kind.pick].relative_to(self._pristine)
        content = (self._pristine / path).read_bytes()
        older = kind.of(self._pristine)[kind.before] if kind.before else self._older / path
        if harm == "older copy" and (not older.exists() or older.read_bytes() == content):
            return Outcome(NEVER)
        if not content and harm in ("flipped", "cut"):
            return Outcome(NOTHING)

        def damage() -> None:
            victim = self.folder / path
            at = min(int(len(content) * place), max(len(content) - 1, 0))
            match harm:
                case "flipped":
                    flipped = content[at] ^ 1 << bit
                    victim.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
                case "cut":
                    victim.write_bytes(content[:at])
                case "removed":
                    victim.unlink()
                case "older copy":
                    shutil.copyfile(older, victim)

        return self._looked(damage)

    def _copy(self, source: str, target: str) -> None:
        if re.fullmatch(self.world.linked, os.path.basename(source)):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    def _looked(self, damage: Callable[[], None]) -> Outcome:
        shutil.copytree(self._pristine, self.folder, copy_function=self._copy)
        try:
            damage()
            what, said = self.world.look(self.folder)
            return Outcome(what, plain(said, self.folder))
        finally:
            shutil.rmtree(self.folder)


def cells(made: Made, kind: Kind) -> Iterator[tuple[str, Outcome]]:
    """The cells of the page: harm, outcome."""
    for place in kind.places:
        yield "flipped", made.cell(kind, "flipped", place)
    for harm in HARMS[1:]:
        yield harm, made.cell(kind, harm, 0.5)


def drawn(made: Made, kind: Kind, rng: random.Random) -> tuple[str, Outcome]:
    harm = rng.choice(("flipped", "flipped", "flipped", "cut", "cut", "removed", "older copy"))
    place, bit = rng.random(), rng.randrange(8)
    return f"{harm} at {place} ({bit})", made.cell(kind, harm, place, bit)


def rows(kind: Kind, found: Sequence[tuple[str, Outcome]]) -> list[str]:
    """Of the page's table: harms that lead to the same share a row."""
    lines, name = [], kind.name
    for what in dict.fromkeys(each.what for _, each in found if each.what != NEVER):
        harms = list(dict.fromkeys(harm for harm, each in found if each.what == what))
        several = len({each.what for harm, each in found if harm == "flipped"}) > 1
        words = [f"{harm} (at some places)" if several and harm == "flipped" else harm for harm in harms]
        said = list(dict.fromkeys(each.said for _, each in found if each.what == what and each.said))
        lines.append(f"| {name} | {', '.join(words)} | {what} | {'; or: '.join(said) or '–'} |")
        name = ""
    return lines


def plain(said: str, folder: Path) -> str:
    """A sentence as the page has it: files by their names, numbers as N, and not what it advises."""
    text = said.replace("|", "/")
    text = re.sub(r"(?:file://|(?<!\w))/\S*?([^/\s:,;]+)(?=[\s:,;]|$)", r"\1", text)
    text = re.sub(r"\b[0-9a-f]{8,}\b", "N", text)
    text = re.sub(r"(?<![A-Za-z0-9])\d+", "N", text)
    text = text.partition("; ")[0].partition("\n")[0]
    return text if len(text) <= 220 else text[:220].rpartition(" ")[0] + " …"


@contextmanager
def told(*names: str) -> Iterator[list[str]]:
    """What is logged as a warning or worse, with its fields."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note = getattr(record, "note", getattr(record, "reason", ""))
            said.append(f"{record.getMessage()}: {note}" if note else record.getMessage())

    handler = Keep(logging.WARNING)
    loggers = [logging.getLogger(name) for name in names or ("qanat.files",)]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield said
    finally:
        for logger, propagates in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagates


def judged(right: bool, said: Sequence[str]) -> Outcome:
    """Of something that started: all is there, or not."""
    if not right:
        return Outcome(LOST, said[0] if said else "")
    return Outcome(MADE_GOOD, said[0]) if said else Outcome(NOTHING)


def section(page: str, world: str) -> tuple[int, int]:
    """Where the rows of a world lie in the page."""
    begin, end = f"<!-- {world} -->\n", f"<!-- end of {world} -->\n"
    at = page.index(begin) + len(begin)
    return at, page.index(end, at)


def written(world: str, lines: Sequence[str], page: str) -> str:
    """The page with these rows."""
    head = ["| file | what was done to it | what happens | what is said |", "|---|---|---|---|"]
    at, end = section(page, world)
    return page[:at] + "\n".join([*head, *lines]) + "\n" + page[end:]


def void(_: object) -> None:
    """Its value says nothing."""


def numbered(prefix: str) -> Iterator[bytes]:
    return (b"%s %d" % (prefix.encode(), number) for number in itertools.count())
