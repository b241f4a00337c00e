"""Filters of applications, as a publisher evaluates them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.protocols.publisher_by_hand import Desk, row

from qanat.events.batch import Batch
from qanat.events.filters import FilterIndex
from qanat.protocols.publisher.config import ApplicationConfig


@pytest.mark.paper("W8")
@pytest.mark.parametrize("applications", [2, 12])
def test_filters_of_all_applications_are_evaluated_once_for_a_read(
    monkeypatch: pytest.MonkeyPatch, applications: int
) -> None:
    matched: list[int] = []
    match = FilterIndex.match

    def counting(self: FilterIndex, batch: Batch) -> Any:
        matched.append(batch.count)
        return match(self, batch)

    monkeypatch.setattr(FilterIndex, "match", counting)
    colours = ("red", "blue")
    wants = {
        f"a{number}": ApplicationConfig(start="0:0", where=f"colour = {colours[number % 2]}")
        for number in range(applications)
    }
    desk = Desk(None, None, **wants)
    for number in range(applications):
        desk.join(f"s{number}", f"a{number}")
    desk.settle()
    for first in (1, 3):
        desk.read(row(first, colour="red"), row(first + 1, colour="blue"))
        assert matched.pop() == 2 and not matched, "once, for however many"
    for number in range(applications):
        assert desk.got(f"s{number}") == (["2:0", "4:0"] if number % 2 else ["1:0", "3:0"])
