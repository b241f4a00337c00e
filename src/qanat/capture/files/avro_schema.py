"""Schemas of Avro, resolved: names are replaced by what they stand for.

Pure; whatever is wrong with a schema is a `MalformedLog` that says where.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from qanat.capture.errors import MalformedLog

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
DEEPEST = 32
"""Types inside types; and values inside values of a type that contains itself."""
MOST_FIELDS = 4096
MOST_FIXED_BYTES = 1 << 20


@dataclass(eq=False, slots=True)
class Type:
    """`kind` is a primitive or `record`, `enum`, `array`, `map`, `union`, `fixed`."""

    kind: str
    name: str = ""
    fields: list[tuple[str, "Type"]] = field(default_factory=list)
    """Of a record; filled in after the record is known by name, which may occur in it."""
    symbols: tuple[str, ...] = ()
    size: int = 0
    items: "Type | None" = None
    """Of an array or a map."""
    branches: tuple["Type", ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def label(self) -> str:
        """As one calls it: `long`, `bytes (decimal)`."""
        kind = self.name or self.kind
        if self.kind == "union":
            kind = " | ".join(branch.label for branch in self.branches)
        return f"{kind} ({self.logical})" if self.logical else kind


def parse_schema(text: bytes) -> Type:
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedLog(f"the schema of an Avro file is not JSON: {error}") from error
    return _Parser().parse(plain, "", 0)


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Type] = {}
        self._fields = 0

    def parse(self, plain: Any, space: str, depth: int) -> Type:
        if depth > DEEPEST:
            raise MalformedLog(f"the schema of an Avro file has more than {DEEPEST} types inside each other")
        match plain:
            case str():
                return self._by_name(plain, space)
            case list():
                branches = tuple(self.parse(branch, space, depth + 1) for branch in plain)
                if not branches or any(branch.kind == "union" for branch in branches):
                    raise _bad("a union has no branches, or a union among them", plain)
                return Type("union", branches=branches)
            case {"type": str(kind)}:
                return self._complex(kind, plain, space, depth)
            case {"type": inner}:
                return self.parse(inner, space, depth + 1)
        raise _bad("it is no type", plain)

    def _by_name(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        found = self._named.get(_full(name, space)) or self._named.get(name)
        if found is None:
            raise _bad("no type of this name stands before it", name)
        return found

    def _complex(self, kind: str, plain: Mapping[str, Any], space: str, depth: int) -> Type:
        match kind:
            case "record" | "error":
                return self._record(plain, space, depth)
            case "enum":
                symbols = plain.get("symbols")
                if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                    raise _bad("an enum has no list of symbols", plain)
                return self._name(Type("enum", symbols=tuple(symbols)), plain, space)
            case "fixed":
                size = plain.get("size")
                if not isinstance(size, int) or not 0 <= size <= MOST_FIXED_BYTES:
                    raise _bad("the size of a fixed is no number of bytes", plain)
                return self._name(_logical(Type("fixed", size=size), plain), plain, space)
            case "array" | "map":
                items = self.parse(plain.get("items" if kind == "array" else "values"), space, depth + 1)
                return Type(kind, items=items)
        if kind in PRIMITIVES:
            return _logical(Type(kind), plain)
        return self._by_name(kind, space)

    def _record(self, plain: Mapping[str, Any], space: str, depth: int) -> Type:
        record = self._name(Type("record"), plain, space)
        inner = record.name.rpartition(".")[0]
        fields = plain.get("fields")
        if not isinstance(fields, list):
            raise _bad("a record has no list of fields", plain)
        self._fields += len(fields)
        if self._fields > MOST_FIELDS:
            raise MalformedLog(f"the schema of an Avro file has more than {MOST_FIELDS} fields")
        for part in fields:
            if not isinstance(part, dict) or not isinstance(part.get("name"), str):
                raise _bad("a field has no name", part)
            record.fields.append((part["name"], self.parse(part.get("type"), inner, depth + 1)))
        if len(dict(record.fields)) < len(record.fields):
            raise _bad("two fields have one name", plain)
        return record

    def _name(self, made: Type, plain: Mapping[str, Any], space: str) -> Type:
        name, given = plain.get("name"), plain.get("namespace", space)
        if not isinstance(name, str) or not name or not isinstance(given, str):
            raise _bad("it has no name", plain)
        made.name = _full(name, given)
        if made.name in self._named or made.name in PRIMITIVES:
            raise _bad("its name is taken", plain)
        self._named[made.name] = made
        return made


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _logical(made: Type, plain: Mapping[str, Any]) -> Type:
    """What the specification says of unknown or impossible ones: they are not there."""
    logical = plain.get("logicalType")
    fits = _LOGICAL.get(logical, ()) if isinstance(logical, str) else ()
    if made.kind not in fits:
        return made
    if logical == "decimal":
        precision, scale = plain.get("precision"), plain.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return made
        if not 0 < precision <= 76 or not 0 <= scale <= precision:
            return made
        made.precision, made.scale = precision, scale
    made.logical = str(logical)
    return made


_LOGICAL: dict[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string",),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **dict.fromkeys(
        [f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")],
        ("long",),
    ),
}


def _bad(why: str, plain: object) -> MalformedLog:
    return MalformedLog(f"the schema of an Avro file cannot be read at {str(plain)[:80]!r}: {why}")
