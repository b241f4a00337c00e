"""Configuration from defaults, a TOML file, `QANAT_*` variables and flags, the later over the earlier.

A setting is known by its dotted key, `transport.heartbeat_ms`. In TOML that is a field of a table; in the
environment `QANAT_TRANSPORT__HEARTBEAT_MS` (two underscores for the dot); as a flag
`transport.heartbeat_ms=500`. Variables without two underscores (`QANAT_CONFIG`, `QANAT_URL`) belong to the
commands and are left alone.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from qanat.events.errors import LocalError
from qanat.runtime.fields import Field, fields_of
from qanat.runtime.fitting import Misfit, fit
from qanat.runtime.toml_lines import line_of

_T = TypeVar("_T", bound=msgspec.Struct)
_PREFIX = "QANAT_"
_PLACE = re.compile(r"^(.*) - at `\$\.?(.*)`$", re.DOTALL)


class BadConfiguration(LocalError):
    """A key that does not exist or a value that does not fit; says which, where, and what exists."""


class Loaded(NamedTuple, Generic[_T]):
    """A configuration, and where each key that is not a default came from."""

    settings: _T
    origins: dict[str, str]


class Reloaded(NamedTuple, Generic[_T]):
    """What a reload gives: settings with the changes that can be had now, and the keys that wait for a
    restart."""

    settings: _T
    applied: list[str]
    need_restart: list[str]


def load(
    root: type[_T],
    *,
    file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[str] | Mapping[str, object] = (),
) -> Loaded[_T]:
    """Reads a configuration; raises `BadConfiguration` with the first thing that is wrong.

    `flags` are `key=value` texts, or a mapping of key to value.
    """
    known = fields_of(root)
    found: dict[str, tuple[object, str, bool]] = {}
    text = ""
    if file is not None:
        text, values = _from_file(Path(file), known)
        found = {key: (value, f"file {file}", True) for key, value in values}
    for name, word in sorted((environment or {}).items()):
        if name.startswith(_PREFIX) and "__" in name:
            key = name[len(_PREFIX) :].replace("__", ".").lower()
            _require_known(key, known, f"environment {name}")
            found[key] = (word, f"environment {name}", False)
    for key, flag in _from_flags(flags):
        _require_known(key, known, f"flag {key}")
        found[key] = (flag, f"flag {key}", not isinstance(flag, str))
    tree: dict[str, Any] = {}
    for key, (raw, origin, strict) in found.items():
        _put(tree, key, _fit(known[key], raw, origin, strict, text))
    try:
        settings = msgspec.convert(tree, root)
    except (msgspec.ValidationError, LocalError, ValueError) as error:
        if text and (place := _PLACE.match(str(error))):
            where = f"file {file}, line {line_of(text, place[2].split('.'))}"
            raise BadConfiguration(f"`{place[2]}` ({where}) does not fit together: {place[1]}") from None
        raise BadConfiguration(f"the configuration does not fit together: {error}") from None
    return Loaded(settings, {key: origin for key, (_, origin, _) in found.items()})


def reload(old: _T, new: _T) -> Reloaded[_T]:
    """Takes over from `new` what may change in a running process."""
    tree = msgspec.to_builtins(old)
    applied: list[str] = []
    need_restart: list[str] = []
    for key, field in fields_of(type(old)).items():
        value = _get(new, key)
        if _get(old, key) == value:
            continue
        if field.reload:
            _put(tree, key, msgspec.to_builtins(value))
            applied.append(key)
        else:
            need_restart.append(key)
    return Reloaded(msgspec.convert(tree, type(old)), applied, need_restart)


def _from_file(path: Path, known: Mapping[str, Field]) -> tuple[str, list[tuple[str, object]]]:
    """The text, and the value of each setting in it."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise BadConfiguration(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{path} is not TOML: {error}") from None
    found: list[tuple[str, object]] = []

    def walk(prefix: str, table: dict[str, Any]) -> None:
        for name, value in table.items():
            key = f"{prefix}{name}"
            if key not in known and isinstance(value, dict) and any(k.startswith(f"{key}.") for k in known):
                walk(f"{key}.", value)
                continue
            if key not in known:
                _require_known(key, known, f"file {path}, line {line_of(text, key.split('.'))}")
            found.append((key, value))

    walk("", document)
    return text, found


def _from_flags(flags: Iterable[str] | Mapping[str, object]) -> Iterable[tuple[str, object]]:
    if isinstance(flags, Mapping):
        yield from flags.items()
        return
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals:
            raise BadConfiguration(f"flag {flag!r}: write key=value, as transport.heartbeat_ms=500")
        yield key.strip(), value


def _require_known(key: str, known: Mapping[str, Field], origin: str) -> None:
    if key in known:
        return
    names = [*known, *{k.rsplit(".", 1)[0] for k in known}]
    section = key.rpartition(".")[0]
    siblings = [k for k in known if k.rpartition(".")[0] == section]
    if key in names:
        hint = "it is a section; set one of " + ", ".join(k for k in known if k.startswith(f"{key}."))
    elif close := difflib.get_close_matches(key, names, n=1, cutoff=0.75):
        hint = f"did you mean `{close[0]}`?"
    elif siblings:
        hint = "there are " + ", ".join(siblings)
    else:
        hint = "there are the sections " + ", ".join(sorted({k.split(".")[0] for k in known}))
    raise BadConfiguration(f"`{key}` ({origin}) is not a setting: {hint}")


def _fit(field: Field, raw: object, origin: str, strict: bool, text: str) -> object:
    value = raw
    if not strict and isinstance(raw, str) and field.is_list:
        value = [part.strip() for part in raw.split(",") if part.strip()]
    path = tuple(field.key.split("."))
    try:
        return msgspec.to_builtins(fit(value, field.type, path, strict=strict))
    except Misfit as misfit:
        unit = f" (unit: {field.unit})" if field.unit else ""
        default = f"; default {field.shown_default}{unit}" if misfit.path == path else ""
        if origin.startswith("file "):
            origin = f"{origin}, line {line_of(text, misfit.path)}"
        raise BadConfiguration(f"`{dotted(misfit.path)}` ({origin}) {misfit.what}{default}") from None


def dotted(path: Iterable[str | int]) -> str:
    """A place in a tree as TOML writes it: `peers."eu/proxy-1".url`."""
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part) for part in map(str, path)
    )


def _put(tree: dict[str, Any], key: str, value: object) -> None:
    *sections, name = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[name] = value


def _get(settings: object, key: str) -> Any:
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings
