"""What the settings structs say about themselves: for loading, for reloading, and for the reference page."""

import ast
import inspect
import json
import textwrap
import typing
from functools import cache
from typing import Annotated, Any

import msgspec

_TABLE = (
    "| key | type | default | unit | SIGHUP | meaning, and reason of the default |\n|---|---|---|---|---|---|"
)


class Field(msgspec.Struct, frozen=True):
    """One setting."""

    key: str
    type: Any
    default: Any
    what: str
    unit: str
    why: str
    reload: bool

    @property
    def is_list(self) -> bool:
        base = typing.get_args(self.type)[0] if typing.get_origin(self.type) is Annotated else self.type
        return typing.get_origin(base) in (tuple, list)

    @property
    def shown_default(self) -> str:
        return "none" if self.default is None else json.dumps(msgspec.to_builtins(self.default))

    @property
    def shown_type(self) -> str:
        base = typing.get_args(self.type)[0] if typing.get_origin(self.type) is Annotated else self.type
        if choices := choices_of(base):
            return " or ".join(f"`{value}`" for value in choices)
        if typing.get_origin(base) is dict:
            return "table"
        if _value_struct(base) is not None:
            return "tables"
        return str(getattr(base, "__name__", base) if not typing.get_args(base) else base)


def choices_of(kind: Any) -> tuple[Any, ...]:
    """The values that a setting can have if it is a choice between some; else none."""
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


@cache
def fields_of(root: type[msgspec.Struct]) -> dict[str, Field]:
    """All settings below a struct by dotted key, in the order they are written."""
    return dict(_walk("", root))


def describe(root: type[msgspec.Struct], known: set[type[msgspec.Struct]] | None = None) -> str:
    """The reference of all settings, in Markdown: a table for each section whose struct is not in `known`
    yet."""
    known = set() if known is None else known
    sections: dict[str, list[Field]] = {}
    for key, field in fields_of(root).items():
        sections.setdefault(key.rpartition(".")[0], []).append(field)
    out: list[str] = []
    for section, fields in sections.items():
        struct = _struct_at(root, section)
        if struct not in known:
            known.add(struct)
            out += _section(
                f"`[{section}]`" if section else "Tables by name", struct if section else None, fields
            )
    for key, field in fields_of(root).items():
        table = _value_struct(field.type)
        if table is not None and table not in known:
            inherited = [fields_of(other) for other in known if issubclass(table, other)]
            own = [each for name, each in fields_of(table).items() if not any(name in i for i in inherited)]
            known.add(table)
            out += _section(f"`[[{key}]]`" if field.is_list else f"`[{key}.NAME]`", table, own)
    return "\n".join(out).strip() + "\n"


def _section(title: str, struct: type[msgspec.Struct] | None, fields: list[Field]) -> list[str]:
    doc = "" if struct is None else inspect.cleandoc(struct.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    out = ["", f"## {title}", "", *([doc, ""] if doc else []), _TABLE]
    for field in fields:
        words = f"{field.what} Why: {field.why}." if field.why else field.what
        cells = (
            f"`{field.key}`",
            field.shown_type.replace("|", "or"),
            f"`{field.shown_default}`" if field.default is not msgspec.NODEFAULT else "",
            field.unit,
            "yes" if field.reload else "",
            words.replace("|", "\\|"),
        )
        out.append("| " + " | ".join(cells) + " |")
    return out


def _value_struct(kind: Any) -> type[msgspec.Struct] | None:
    """The struct of a table of tables, `dict[str, Struct]`, or of an array of tables, `tuple[Struct,
    ...]`."""
    base = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    if typing.get_origin(base) in (dict, tuple, list):
        value = typing.get_args(base)[1 if typing.get_origin(base) is dict else 0]
        if isinstance(value, type) and issubclass(value, msgspec.Struct):
            return value
    return None


def _walk(
    prefix: str, struct: type[msgspec.Struct], reload: bool = False
) -> typing.Iterator[tuple[str, Field]]:
    """`reload`: the whole section may change on SIGHUP, as its own field says; but not what is `fixed`."""
    hints = typing.get_type_hints(struct, include_extras=True)
    comments = _comments(struct)
    for info in msgspec.structs.fields(struct):
        kind = hints[info.name]
        whole = any(m.extra and m.extra.get("reload") for m in getattr(kind, "__metadata__", ()))
        base = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
        if isinstance(base, type) and issubclass(base, msgspec.Struct):
            yield from _walk(f"{prefix}{info.name}.", base, reload or whole)
            continue
        key = f"{prefix}{info.name}"
        default = info.default_factory() if callable(info.default_factory) else info.default
        metas = [m for m in getattr(kind, "__metadata__", ()) if isinstance(m, msgspec.Meta)]
        extra = next((m.extra for m in metas if m.extra), {})
        what = next((m.description for m in metas if m.description), comments.get(info.name, ""))
        unit = extra.get("unit") or _unit_of(info.name)
        yield (
            key,
            Field(
                key,
                kind,
                default,
                what,
                unit,
                extra.get("why", ""),
                not extra.get("fixed") and (reload or bool(extra.get("reload", False))),
            ),
        )


def _unit_of(name: str) -> str:
    """Units stand last in names."""
    return next((unit for unit in ("bytes", "ms", "us") if name.endswith(f"_{unit}")), "")


def _comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The strings that stand below the fields in the source, for structs of other rooms; also of those that
    it derives from."""
    found: dict[str, str] = {}
    for base in struct.__bases__:
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found |= _comments(base)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    except (OSError, TypeError, SyntaxError):
        return found
    name = ""
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            found[name] = " ".join(str(node.value.value).split())
            name = ""
    return found


def _struct_at(root: type[msgspec.Struct], section: str) -> type[msgspec.Struct]:
    for name in section.split(".") if section else ():
        root = typing.get_type_hints(root)[name]
    return root
