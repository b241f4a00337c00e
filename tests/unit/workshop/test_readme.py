"""The README's two minutes, typed in as they stand, on a port and a folder of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [text for text in blocks if containing in text]
    return str(found)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where the README's first terminal runs its server, and what the second one must know of it."""
    server = subprocess.Popen(
        ["sh", "-c", f"exec {block('sh', './qanat serve').strip()}"],
        cwd=CHECKOUT,
        env=os.environ
        | {
            "QANAT_NODE__LISTEN": "127.0.0.1:0",
            "QANAT_NODE__DATA": str(tmp_path / "data"),
            "QANAT_ADMIN__PORT": "0",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with server:
        try:
            assert server.stdout is not None
            heard = re.match(r"listening on (qanat://[\w.:]+)", server.stdout.readline())
            assert heard is not None
            yield os.environ | {"QANAT_URL": heard[1]}
        finally:
            server.terminate()
    assert server.returncode == 0


def run(words: list[str], environment: dict[str, str]) -> str:
    ran = subprocess.run(
        words, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.always
def test_the_two_minutes_of_the_readme(environment: dict[str, str]) -> None:
    lines = run(["sh", "-euc", block("sh", "./qanat pub weather")], environment).splitlines()
    assert lines[:3] == ["1\train", "2\tsnow", "3\tsun"]
    assert any(line.startswith("weather ") for line in lines[3:])
    python = block("python", "with Client()").replace("Client()", 'Client(os.environ["QANAT_URL"])')
    assert run([sys.executable, "-c", f"import os\n{python}"], environment) == "4 b'hail'\n"


@pytest.mark.always
def test_the_three_regions_of_the_readme(tmp_path: Path) -> None:
    """On ports of their own, and always taken down."""
    folder = tmp_path / "qanat" / "local"
    folder.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QANAT")}
    environment["XDG_STATE_HOME"] = str(tmp_path)
    from qanat.operate.file import standard, write

    (folder / "deployment.toml").write_text(write(standard(first_port=0)), encoding="utf-8")
    try:
        said = run(["sh", "-euc", block("sh", "./qanat pub eu-events")], environment)
        for words in (
            "every region serves",
            "1\train\n2\tsnow\n3\tsun",
            "cut: eu – us",
            "is killed",
            "1 link cut",
        ):
            assert words in said
        assert said.rstrip().endswith(f"stopped; the data stay in {folder}")
    finally:
        run(["./qanat", "down", "--wipe"], environment)
