"""Keeps pandas out of processes that have no use for it.

Arrow imports pandas, where it is installed, the first time that it is given a Python list: 0.4 s and 45 MB
for each process of a deployment. Where it cannot be imported, Arrow does without.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

LEAN_COMMANDS = frozenset(
    {
        "up",
        "down",
        "apply",
        "link",
        "kill",
        "start",
        "replica",
        "coordinator",
        "status",
        "streams",
        "node",
        "serve",
        "pub",
        "sub",
        "demo",
    }
)


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name="pandas")
        return None


def do_without_pandas() -> None:
    """For the whole life of this process; call it where a process begins."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
