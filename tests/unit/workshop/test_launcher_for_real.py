"""The launcher with the real venv, pip and uv, offline: its one package is a wheel that the test itself
makes."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
TOOLS = ("sh", "dirname", "readlink", "cksum", "cp", "mv", "rm", "cat")
NOWHERE = "http://127.0.0.1:9/simple"  # the discard port: refused at once

pytestmark = pytest.mark.slow


def has_uv() -> bool:
    uv = shutil.which("uv")
    return uv is not None and subprocess.run([uv, "--version"], capture_output=True).returncode == 0


def wheel(folder: Path) -> str:
    """A package `tiny` whose module is worth compiling; returns its line for the lock file."""
    folder.mkdir()
    path = folder / "tiny-1.0-py3-none-any.whl"
    files = {
        "tiny.py": "answer = 42\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},"
        f"{len(text)}\n"
        for name, text in files.items()
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, "tiny-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return f"tiny==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "src" / "qanat").mkdir(parents=True)
    shutil.copy(CHECKOUT / "qanat", root / "qanat")
    (root / "src" / "qanat" / "__init__.py").write_text("")
    (root / "src" / "qanat" / "__main__.py").write_text(
        "import subprocess, sys, tiny\n"
        'child = subprocess.run([sys.executable, "-c", "import qanat; print(qanat.__file__)"], text=True,\n'
        '                       capture_output=True, cwd="/")\n'
        "print(tiny.answer, tiny.__cached__, child.stdout.strip(), sep='|')\n"
    )
    (root / "requirements.lock").write_text(wheel(tmp_path / "wheels"))
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    return root


def launch(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    base |= {"PATH": str(root.parent / "bin"), "HOME": str(root.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    offline = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(root.parent / "cache")}
    return subprocess.run(
        [root / "qanat"], env=base | offline | environment, capture_output=True, text=True, check=False
    )


def check_works(root: Path, ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stderr
    answer, compiled, found_by_child = ran.stdout.strip().split("|")
    assert answer == "42"
    assert Path(compiled).is_file()
    assert Path(found_by_child) == root.resolve() / "src" / "qanat" / "__init__.py"


def test_with_pip(root: Path) -> None:
    wheels = str(root.parent / "wheels")
    check_works(root, launch(root, PIP_NO_INDEX="1", PIP_FIND_LINKS=wheels))
    again = launch(root)
    assert again.stderr == ""


@pytest.mark.skipif(not has_uv(), reason="there is no uv on this machine")
def test_with_uv(root: Path) -> None:
    (root.parent / "bin" / "uv").symlink_to(_real_uv())
    wheels = str(root.parent / "wheels")
    ran = launch(root, UV_NO_INDEX="1", UV_FIND_LINKS=wheels)
    check_works(root, ran)
    assert "with pip" not in ran.stderr


def test_a_package_that_is_not_the_locked_one_is_refused(root: Path) -> None:
    (root / "requirements.lock").write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    ran = launch(root, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(root.parent / "wheels"))
    assert ran.returncode == 3
    assert "HASHES" in (root / ".venv.log").read_text()


def test_an_unreachable_index_is_said_in_one_sentence(root: Path) -> None:
    if has_uv():
        (root.parent / "bin" / "uv").symlink_to(_real_uv())
    ran = launch(root, PIP_INDEX_URL=NOWHERE, PIP_RETRIES="0", UV_DEFAULT_INDEX=NOWHERE, UV_HTTP_RETRIES="0")
    assert (ran.returncode, ran.stdout) == (3, "")
    last = ran.stderr.strip().splitlines()[-1]
    assert "index can be reached" in last
    assert not (root / ".venv" / "installed").exists()


def _real_uv() -> str:
    """The program itself: what is on PATH may be a script that needs its own environment."""
    found = subprocess.run(
        ["uv", "run", "--no-project", "--quiet", "sh", "-c", 'printf %s "$UV"'],
        capture_output=True,
        text=True,
    ).stdout
    return found or str(shutil.which("uv"))
