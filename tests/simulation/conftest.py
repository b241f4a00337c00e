"""Scenarios are named as a person at the root of the project names them."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # so that replay commands can be pasted
