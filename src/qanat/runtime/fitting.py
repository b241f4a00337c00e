"""A plain tree, as a file gives it, fitted to typed structs; what does not fit is told with its exact place
in the tree.

`msgspec.convert` does the same for the whole, but of a table of tables it names no key.
"""

import difflib
import typing
from typing import Annotated, Any

import msgspec

from qanat.events.errors import LocalError
from qanat.runtime.fields import choices_of
from qanat.runtime.toml_lines import Path


class Misfit(Exception):
    """Something in the tree is wrong: where, and a sentence without the place."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(what)
        self.path, self.what = path, what


def fit(value: object, kind: Any, path: Path = (), *, strict: bool = True) -> Any:
    """`value` as a `kind`; raises `Misfit` for the first thing that is wrong."""
    base, metas = kind, ()
    if typing.get_origin(kind) is Annotated:
        base, metas = typing.get_args(kind)[0], typing.get_args(kind)[1:]
    if isinstance(base, type) and issubclass(base, msgspec.Struct):
        return _fit_struct(value, base, path, strict)
    arguments = typing.get_args(base)
    match typing.get_origin(base):
        case origin if origin is dict and isinstance(value, dict):
            value = {key: fit(each, arguments[1], (*path, key), strict=strict) for key, each in value.items()}
        case origin if origin in (list, tuple) and isinstance(value, list) and _holds_structs(arguments[0]):
            value = [fit(each, arguments[0], (*path, i), strict=strict) for i, each in enumerate(value)]
    try:
        return msgspec.convert(value, Annotated[base, *metas] if metas else base, strict=strict)
    except (msgspec.ValidationError, LocalError, ValueError) as error:
        choices = ", ".join(map(repr, choices_of(base)))
        why = f"expected one of {choices}" if choices else _plain(error)
        raise Misfit(path, f"cannot be {_shown(value)}: {why}") from None


def _fit_struct(value: object, kind: type[msgspec.Struct], path: Path, strict: bool) -> object:
    if isinstance(value, kind):
        return value
    if not isinstance(value, dict):
        raise Misfit(path, f"cannot be {_shown(value)}: expected a table")
    hints = typing.get_type_hints(kind, include_extras=True)
    known = {info.name: info for info in msgspec.structs.fields(kind)}
    for name in value:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(known)}"
            raise Misfit((*path, name), f"is not known: {hint}")
    for name, info in known.items():
        if info.required and name not in value:
            raise Misfit(path, f"needs `{name}`")
    fields = {name: fit(each, hints[name], (*path, name), strict=strict) for name, each in value.items()}
    try:
        return kind(**fields)
    except (LocalError, ValueError) as error:
        raise Misfit(path, f"does not fit together: {error}") from None


def _holds_structs(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _plain(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
