"""The longest tests take turns: each has one, all turns take about as long, and chosen tests take none."""

from __future__ import annotations

import json
from pathlib import Path

from tests import durations
from tests.rotation import LONG_S, OF, turns_of_long


def test_each_long_test_has_one_turn_and_turns_are_about_as_long() -> None:
    took = {f"t{i}": LONG_S + i % 17 for i in range(1, 120)} | {"short": LONG_S}
    turns = turns_of_long(took)
    assert sorted(turns) == sorted(name for name in took if took[name] > LONG_S)
    lengths = [sum(took[name] for name in turns if turns[name] == turn) for turn in range(OF)]
    assert max(lengths) - min(lengths) <= max(took.values())


def test_the_recorded_tests_are_there() -> None:
    """A name that changed would make its test one that takes no time."""
    root = Path(__file__).parents[3]
    for name in durations.read():
        path, _, test = name.partition("::")
        text = (root / path).read_text(encoding="utf-8")
        assert test.partition("[")[0].split("::")[0] in text, name


def test_what_was_not_run_keeps_what_it_had_and_what_takes_no_time_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    durations.update({"tests/a.py::b": 7.25, "tests/a.py::c": 0.1}, file)
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["tests/a.py::b"] == 7.2 and "tests/a.py::c" not in kept
    assert kept.items() >= durations.read().items()
