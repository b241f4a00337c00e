"""Typed tables from TOML, with errors that say where, what is wrong and what exists."""

import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from qanat.events.errors import LocalError

T = TypeVar("T")


class BadScenario(LocalError):
    """A scenario file that cannot be run; says where and what to write instead."""


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadScenario(f"there is no scenario file {path}") from None
    except OSError as error:
        raise BadScenario(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadScenario(f"{path} is not valid TOML: {error}") from error


def convert(data: Any, kind: type[T], where: str) -> T:
    """`data` as a `kind`, or `BadScenario`. Unknown keys are told with the keys there are."""
    _refuse_unknown(data, kind, where)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadScenario(f"{where}: {_readable(str(error))}") from error


def unknown(what: str, name: str, known: typing.Iterable[str], where: str) -> BadScenario:
    """The error for a name that does not exist."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return BadScenario(f"{where}: unknown {what} {name!r}; {hint}there are: {', '.join(names) or 'none'}")


def _readable(error: str) -> str:
    """msgspec ends with a path such as ``at `$.links.loss` ``; say it as TOML would."""
    sentence, _, place = error.partition(" - at `$")
    return f"{place.rstrip('`').lstrip('.')}: {sentence}" if place else sentence


def _refuse_unknown(data: Any, kind: Any, where: str) -> None:
    options = _structs(kind)
    if isinstance(data, list | tuple):
        inner = [part for part in typing.get_args(kind) if part is not Ellipsis]
        for index, item in enumerate(data):
            if inner:
                _refuse_unknown(item, inner[min(index, len(inner) - 1)], f"{where}[{index}]")
        return
    if not isinstance(data, Mapping) or not options:
        return
    struct = _by_tag(data, options, where)
    config = struct.__struct_config__
    hints = typing.get_type_hints(struct)
    known = [*([config.tag_field] if config.tag_field else []), *struct.__struct_encode_fields__]
    for key, value in data.items():
        if key not in known:
            raise unknown("key", str(key), known, where)
        if key in hints:
            _refuse_unknown(value, hints[key], f"{where}.{key}")


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return [struct for part in typing.get_args(kind) for struct in _structs(part)]
    return [kind] if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []


def _by_tag(data: Mapping[str, Any], options: list[type[msgspec.Struct]], where: str) -> type[msgspec.Struct]:
    field = options[0].__struct_config__.tag_field
    if field is None or len(options) == 1:
        return options[0]
    tags = {str(option.__struct_config__.tag): option for option in options}
    if field not in data:
        raise BadScenario(f"{where}: `{field}` is missing; it is one of: {', '.join(tags)}")
    if str(data[field]) not in tags:
        raise unknown(field, str(data[field]), tags, where)
    return tags[str(data[field])]
