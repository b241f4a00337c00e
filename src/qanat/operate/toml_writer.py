"""A plain tree as TOML. The standard library reads it only; of it, this writes what configurations need."""

import json
import re
from collections.abc import Iterator, Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(tree: Mapping[str, object]) -> str:
    """Values first, then tables, then arrays of tables, each under its full header."""
    return "\n".join(_table((), tree)).strip() + "\n"


def _table(path: tuple[str, ...], table: Mapping[str, object]) -> Iterator[str]:
    for name, value in table.items():
        if not isinstance(value, dict) and not _is_tables(value):
            yield f"{_key(name)} = {_value(value)}"
    for name, value in table.items():
        here = (*path, name)
        header = ".".join(map(_key, here))
        if isinstance(value, dict):
            if not value or any(not isinstance(each, dict) for each in value.values()):
                yield f"\n[{header}]"
            yield from _table(here, value)
        elif _is_tables(value):
            for each in value:  # type: ignore[attr-defined]
                yield f"\n[[{header}]]"
                yield from _table(here, each)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return "{ " + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + " }"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
