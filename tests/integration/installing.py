"""The wheel, and an environment that has it and nothing of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CHANGING = ("PYTHON", "QANAT")
"""Beginnings of variables by which a program might find the checkout, or another server."""
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(CHANGING)}


def build(folder: Path) -> Path:
    """The wheel of this checkout, made by its build backend, which is a dependency of developers."""
    if find_spec("hatchling") is not None:
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], CHECKOUT)
    else:
        print("hatchling is not installed (requirements.lock has it): pip fetches it", file=sys.stderr)
        _run([sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), "."], CHECKOUT)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Environment:
    """A new environment with the wheel and the extra `spark`.

    It sees what others' packages are installed beside these tests, through a line in a `.pth` file: fetching
    Spark again would take minutes and a network. Python reads no `.pth` files of a folder that such a line
    names, so the one that finds this checkout has no effect. pip looks whether those packages fit what the
    wheel asks for, and may fetch nothing.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        _run([sys.executable, "-m", "venv", str(folder)], folder.parent)
        site = self.run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        self.site = Path(site)
        (self.site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        words = [self.python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check"]
        self.run(*words, f"qanat[spark] @ {wheel.as_uri()}")

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def qanat(self) -> str:
        """The console script."""
        return str(self.folder / "bin" / "qanat")

    def run(self, *words: str, told: str = "", code: int = 0, added: Mapping[str, str] = CLEAN) -> str:
        """What a program says, outside of the checkout; of one that fails, on both of its ways."""
        return _run(words, self.folder, told, code, added)


def _run(
    words: Sequence[str], folder: Path, told: str = "", code: int = 0, added: Mapping[str, str] = CLEAN
) -> str:
    ran = subprocess.run(
        words,
        cwd=folder,
        input=told,
        env={**CLEAN, **added},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == code, (words, ran.returncode, ran.stdout[-2000:], ran.stderr[-2000:])
    return ran.stdout if code == 0 else ran.stdout + ran.stderr
