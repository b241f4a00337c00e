"""What pages and `--help` tell people to write can be written so."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from qanat.cli.main import COMMANDS
from qanat.events.filters import parse
from qanat.publisher.settings import PublisherSettings

CHECKOUT = Path(__file__).resolve().parents[3]
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *sorted(CHECKOUT.glob("docs/*.md"))]
_FILTERS = (
    r'where\s*=\s*"([^"\n]+)"',  # Python, TOML
    r'"where=([^"\n]+)"',  # settings as words of a command
    r'--where "([^"\n]+)"',
)


def filters() -> list[tuple[str, str]]:
    told = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    told |= {name: import_module(f"qanat.cli.commands.{name}").EXAMPLES for name in COMMANDS}
    return [
        (where, found)
        for where, text in told.items()
        for pattern in _FILTERS
        for found in re.findall(pattern, text)
    ]


@pytest.mark.parametrize(("where", "text"), filters())
def test_a_filter_that_is_shown_is_one(where: str, text: str) -> None:
    parse(text)


def test_the_files_of_the_page_on_publishers_are_settings() -> None:
    page = (CHECKOUT / "docs/publisher.md").read_text(encoding="utf-8")
    files = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(files) >= 2
    for file in files:
        msgspec.convert(tomllib.loads(file), PublisherSettings)
