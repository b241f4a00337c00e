"""On which line of a TOML text a key stands: the parser does not say, and a person wants to know."""

import re
import tomllib
from collections.abc import Iterator, Sequence

Path = tuple[str | int, ...]
"""Keys from the root down; an array of tables adds the table's number, from 0."""

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(\[\[|\[)\s*({_DOTTED})\s*(\]\]|\])")
_ENTRY = re.compile(rf"\s*({_DOTTED})\s*=")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line of the key, or of the nearest thing around it that is written; 1 if there is none. `text` is
    valid TOML."""
    best, found = 0, 1
    for line, here in _keys(text):
        same = 0
        for a, b in zip(here, path, strict=False):
            if a != b:
                break
            same += 1
        if same > best and same == min(len(here), len(path)):
            best, found = same, line
    return found


def _keys(text: str) -> Iterator[tuple[int, Path]]:
    """Every header and every key with its full path, in the order of the lines."""
    lines = text.splitlines()
    table: Path = ()
    counts: dict[Path, int] = {}
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at]
        at += 1
        if header := _HEADER.match(line):
            table = tuple(_split(header[2]))
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
            table = _numbered(table, counts)
            yield number, table
        elif entry := _ENTRY.match(line):
            yield number, (*table, *_split(entry[1]))
            value = line[entry.end() :]
            while at < len(lines) and not _whole(value):
                value += "\n" + lines[at]
                at += 1


def _numbered(table: Path, counts: dict[Path, int]) -> Path:
    out: Path = ()
    plain: Path = ()
    for part in table:
        plain, out = (*plain, part), (*out, part)
        if plain in counts:
            out = (*out, counts[plain])
    return out


def _split(dotted: str) -> list[str]:
    """The parts of a dotted key, each as the parser reads it."""
    parts: list[str] = re.findall(_PART, dotted)
    return [next(iter(tomllib.loads(f"{part} = 0"))) for part in parts]


def _whole(value: str) -> bool:
    try:
        tomllib.loads(f"x = {value}")
    except tomllib.TOMLDecodeError:
        return False
    return True
