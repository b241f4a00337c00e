"""The OPTIONS file that a RocksDB writes when it is opened: `name=value` in sections."""

import re
from pathlib import Path

_NAME = re.compile(r"OPTIONS-(\d+)")
_LINE = re.compile(r"\s*([A-Za-z_0-9]+)\s*=\s*(.*?)\s*")


def read_options(database: Path) -> dict[str, str]:
    """The options of the database, not of its column families, as of its last opening; nothing if there is no such file."""
    files = [(int(found[1]), path) for path in database.iterdir() if (found := _NAME.fullmatch(path.name))]
    for _, path in sorted(files, reverse=True):
        try:
            return parse_options(path.read_text("utf-8", "replace"))
        except FileNotFoundError:  # RocksDB keeps the last two
            continue
    return {}


def parse_options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip()
        elif section == "[DBOptions]" and (pair := _LINE.fullmatch(line)):
            found[pair[1]] = pair[2].replace("\\:", ":").replace("\\\\", "\\")
    return found
