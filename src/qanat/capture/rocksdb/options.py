"""Small files of text that a RocksDB writes: OPTIONS when it is opened, `name=value` in sections; IDENTITY
when it is made."""

import re
from pathlib import Path

_NAME = re.compile(r"OPTIONS-(\d+)")
_LINE = re.compile(r"\s*([A-Za-z_0-9]+)\s*=\s*(.*?)\s*")


def read_options(database: Path) -> dict[str, str]:
    """The options of the database, not of its column families, as of its last opening; nothing if there is no
    such file."""
    files = [(int(found[1]), path) for path in database.iterdir() if (found := _NAME.fullmatch(path.name))]
    for _, path in sorted(files, reverse=True):
        try:
            return parse_options(path.read_text("utf-8", "replace"))
        except FileNotFoundError:  # RocksDB keeps the last two
            continue
    return {}


def read_identity(database: Path) -> str:
    """What no other database has; nothing if the file is not there, which a database may be told not to
    write."""
    try:
        return (database / "IDENTITY").read_text("ascii", "replace").strip()[:64]
    except FileNotFoundError:
        return ""


def parse_options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip()
        elif section == "[DBOptions]" and (pair := _LINE.fullmatch(line)):
            found[pair[1]] = pair[2].replace("\\:", ":").replace("\\\\", "\\")
    return found
