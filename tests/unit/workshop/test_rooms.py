"""Imports point only downward between rooms, by the table in ARCHITECTURE.md; and protocols stay without
I/O."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
SOURCE = CHECKOUT / "src" / "qanat"
PURE = ("protocols", "kernel")

# A machine is given its clock, its randomness and its way out; what it could use instead is named here.
BANNED_MODULES = {
    "asyncio", "concurrent", "datetime.datetime", "io", "logging", "multiprocessing", "os", "pathlib",
    "sched", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess", "tempfile",
    "threading", "time", "uuid", "uvloop",
}  # fmt: skip
BANNED_CALLS = {"open", "print", "input"}


def rooms() -> dict[str, set[str]]:
    """Room → rooms it may import, from the table; `all above` means the lines before it."""
    table: dict[str, set[str]] = {}
    for line in (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        matched = re.match(r"\| `(\w+)` \|.*\| ([^|]+) \|$", line)
        if matched is None:
            continue
        room, allowed = matched.groups()
        named = set(re.findall(r"`(\w+)`", allowed))
        table[room] = set(table) - named if allowed.startswith("all above") else named
    return table


def imported(tree: ast.Module, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, those under `if TYPE_CHECKING` and inside functions as well."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=origin, level=level, names=names):
                base = module.split(".")[:-level] if level else []
                prefix = ".".join([*base, *([origin] if origin else [])])
                yield from ((node.lineno, f"{prefix}.{alias.name}") for alias in names)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts), path


def upward(room: str, module: str, source: str, allowed: set[str]) -> list[str]:
    """The imports of `source` that leave its room for one that it may not use."""
    wrong = []
    for line, name in imported(ast.parse(source), module):
        parts = name.split(".")
        if parts[0] == "qanat" and len(parts) > 1 and (SOURCE / parts[1]).is_dir():
            if parts[1] not in allowed | {room}:
                wrong.append(f"{module}:{line} imports {name}")
    return wrong


def test_the_table_is_in_order_and_names_every_room() -> None:
    table = rooms()
    there = {path.parent.name for path in SOURCE.glob("*/*.py")}
    assert there <= set(table), "a new room needs its line in ARCHITECTURE.md"
    seen: set[str] = set()
    for room, allowed in table.items():
        assert allowed <= seen, f"{room} may import only from rooms above it"
        seen.add(room)
    assert table["bench"] == table["studies"] | {"studies"}


def test_imports_point_downward() -> None:
    table = rooms()
    wrong: list[str] = []
    for module, path in modules():
        room = module.split(".")[1]
        if room in table:
            wrong += upward(room, module, path.read_text(encoding="utf-8"), table[room])
    assert wrong == []


def test_the_package_itself_imports_nothing() -> None:
    assert (
        list(imported(ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8")), "qanat.__init__"))
        == []
    )


@pytest.mark.parametrize(
    "source",
    [
        "from qanat.serving import server",
        "import qanat.serving.server",
        "from qanat import serving",
        "from ..serving import server",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from qanat.serving.server import Server",
        "def f():\n    from qanat.serving import server",
    ],
)
def test_an_upward_import_is_found_however_it_is_written(source: str) -> None:
    assert upward("nowhere", "qanat.nowhere.module", source.replace("serving", "cli"), {"events"}) != []


def test_downward_and_own_imports_are_let_be() -> None:
    source = (
        "from qanat.events import batch\nfrom .near import x\nfrom qanat import __version__\nimport numpy"
    )
    assert upward("cli", "qanat.cli.module", source, {"events"}) == []


def impurities(source: str) -> list[str]:
    """What a machine may not do: clocks, tasks, sockets, files, and randomness that it was not given."""
    found = []
    tree = ast.parse(source)
    names = {name: line for line, name in imported(tree, "qanat.protocols.module")}
    for name, line in names.items():
        parents = {".".join(name.split(".")[: depth + 1]) for depth in range(name.count(".") + 1)}
        if parents & BANNED_MODULES:
            found.append(f"{line}: import {name}")
        if name.startswith("random.") and name != "random.Random":
            found.append(f"{line}: import {name}")
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=called)) if called in BANNED_CALLS:
                found.append(f"{node.lineno}: {called}()")
            case ast.Call(func=ast.Name(id="Random") | ast.Attribute(attr="Random"), args=[]):
                found.append(f"{node.lineno}: randomness without a seed")
            case ast.Attribute(value=ast.Name(id="random"), attr=used) if (
                used != "Random" and "random" in names
            ):
                found.append(f"{node.lineno}: random.{used}")
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                found.append(f"{node.lineno}: NumPy's randomness")
            case ast.Attribute(
                attr="now" | "utcnow" | "today", value=ast.Attribute(attr="datetime" | "date")
            ):
                found.append(f"{node.lineno}: the wall clock")
    return found


def test_protocols_read_no_clock_and_draw_no_randomness_of_their_own() -> None:
    wrong = [
        f"{path.relative_to(CHECKOUT)}:{what}"
        for room in PURE
        for path in sorted((SOURCE / room).rglob("*.py"))
        for what in impurities(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import time as clock",
        "from time import monotonic",
        "import asyncio.queues",
        "import uuid",
        "import socket",
        "import threading",
        "import os",
        "from datetime import datetime",
        "import datetime\nx = datetime.datetime.now()",
        "import random\nx = random.random()",
        "import random\nrandom.shuffle([])",
        "from random import choice",
        "import random\nrng = random.Random()",
        "from random import Random\nrng = Random()",
        "import numpy as np\nrng = np.random.default_rng()",
        "print('x')",
        "open('x')",
    ],
)
def test_each_impurity_is_found(source: str) -> None:
    assert impurities(source) != []


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef f(rng: random.Random) -> float: return rng.random()",
        "from random import Random\nx = Random(7)",
        "import heapq, math, collections",
        "from datetime import timedelta",
        "def f(context): return context.rng.random()",
    ],
)
def test_what_is_pure_is_let_be(source: str) -> None:
    assert impurities(source) == []
