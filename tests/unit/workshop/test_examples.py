"""The profile of Hypothesis reaches every test."""

import re
from pathlib import Path

import pytest
from hypothesis import settings
from tests.examples import examples

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(("profile", "tried"), [("dev", 30), ("thorough", 600)])
def test_a_profile_scales_what_a_test_says(profile: str, tried: int) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert examples(30) == tried
        assert examples(1) >= 1
    finally:
        settings.load_profile(before)


def test_no_property_says_a_number_of_its_own() -> None:
    files = [*TESTS.glob("property/*.py"), *TESTS.glob("unit/**/*.py")]
    fixed = [str(file) for file in files if re.search(r"max_examples=[0-9]", file.read_text())]
    assert fixed == []
