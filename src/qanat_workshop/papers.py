"""`docs/papers.md`: the ledger that ties each mechanism of the papers to its code, its tests and its page.

The column of tests is written from the markers `@pytest.mark.paper("S2")`, which are found by reading the
test files, never by importing them. The other columns are written by hand.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

LEDGER = Path("docs/papers.md")
ROWS = {"S": 14, "G": 12, "W": 15, "P": 11, "M": 11, "D": 9}  # how many rows each part of the ledger has
IDS = tuple(f"{part}{number}" for part, count in ROWS.items() for number in range(1, count + 1))
NOT_BUILT = "not built yet"

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_ROW = re.compile(r"^\|\s*([A-Z]\d+)\s*\|(.*)\|\s*$")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Links are relative to the folder of the ledger."""

    id: str
    mechanism: str
    code: str
    tests: str
    docs: str

    @property
    def built(self) -> bool:
        return self.code != NOT_BUILT

    def links(self) -> list[str]:
        return [target for cell in (self.code, self.tests, self.docs) for _, target in _LINK.findall(cell)]

    def test_files(self) -> set[str]:
        return {target for _, target in _LINK.findall(self.tests)}

    def __str__(self) -> str:
        return f"| {self.id} | {self.mechanism} | {self.code} | {self.tests} | {self.docs} |"


def parse(line: str) -> Row | None:
    """The row on this line of the ledger, or None when the line is something else."""
    matched = _ROW.match(line)
    if matched is None:
        return None
    cells = [cell.strip() for cell in matched[2].split("|")]
    if len(cells) != 4:
        raise ValueError(f"row {matched[1]} of {LEDGER} has {len(cells)} cells after its id; it needs 4")
    return Row(matched[1], *cells)


def rows(root: Path) -> list[Row]:
    lines = (root / LEDGER).read_text(encoding="utf-8").splitlines()
    return [row for line in lines if (row := parse(line)) is not None]


def marks(root: Path) -> dict[str, set[Path]]:
    """For each id named by a marker, the test files (relative to `root`) that name it."""
    found: dict[str, set[Path]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for identifier in _marked(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            found.setdefault(identifier, set()).add(path.relative_to(root))
    return found


def update(root: Path) -> int:
    """Write the column of tests from the markers; return how many rows changed."""
    found = marks(root)
    lines = (root / LEDGER).read_text(encoding="utf-8").splitlines()
    changed = 0
    for index, line in enumerate(lines):
        row = parse(line)
        if row is None:
            continue
        fresh = replace(row, tests=cell_of_tests(found.get(row.id, set())))
        changed += fresh != row
        lines[index] = str(fresh)
    (root / LEDGER).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return changed


def cell_of_tests(paths: set[Path]) -> str:
    links = (f"[{path.stem.removeprefix('test_')}]({link(path)})" for path in sorted(paths))
    return ", ".join(links) or "–"


def link(path: Path) -> str:
    """How the ledger links to a path given from the root."""
    return Path(os.path.relpath(path, LEDGER.parent)).as_posix()


def _marked(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    attr="paper", value=ast.Attribute(attr="mark", value=ast.Name(id="pytest"))
                ),
                args=arguments,
            ):
                for argument in arguments:
                    yield str(ast.literal_eval(argument))
