"""The example of a cache, told of a row that it has no key for."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qanat.capture.updates import Op
from qanat.events.errors import LocalError

EXAMPLE = Path(__file__).parents[3] / "examples" / "coherent_cache.py"


def test_a_row_without_an_id_is_told_in_a_sentence() -> None:
    forgotten: list[str] = []
    cache = runpy.run_path(str(EXAMPLE))["Coherent"](SimpleNamespace(forget=forgotten.append))

    def update(**row: int) -> Any:
        return SimpleNamespace(op=Op.INSERT, table=SimpleNamespace(path="shop.t"), before=None, after=row)

    cache.on_update(update(id=7))
    with pytest.raises(LocalError, match=r"shop\.t has no column id.*a where on tables that have one"):
        cache.on_update(update(number=7))
    assert forgotten == ["shop.t:7"]
