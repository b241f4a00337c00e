"""What several streams may give of one micro-batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.pipeline.source.planning import shares


@pytest.mark.parametrize(
    ("available", "limit", "expected"),
    [
        ({"a": 5, "b": 3}, 10, {"a": 5, "b": 3}),
        ({"a": 90, "b": 10, "c": 0}, 50, {"a": 45, "b": 5, "c": 0}),
        ({"a": 1_000_000, "b": 1, "c": 1}, 10, {"a": 8, "b": 1, "c": 1}),
        ({"a": 1_000_000, "b": 2, "c": 0}, 2, {"a": 1, "b": 1, "c": 0}),
        ({"a": 3, "b": 1, "c": 2}, 2, {"a": 1, "b": 0, "c": 1}),
        ({"a": 3, "b": 3}, 1, {"a": 1, "b": 0}),
    ],
)
def test_a_small_stream_is_not_starved_by_a_large_one(
    available: dict[str, int], limit: int, expected: dict[str, int]
) -> None:
    assert shares(available, limit) == expected


@given(st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 10**12)), st.integers(1, 10**6))
def test_all_of_a_limit_is_used_and_every_stream_has_some_of_it(
    available: dict[str, int], limit: int
) -> None:
    found = shares(available, limit)
    assert found.keys() == available.keys()
    assert all(0 <= found[name] <= have for name, have in available.items())
    assert sum(found.values()) == min(limit, sum(available.values()))
    having = [name for name, have in available.items() if have]
    assert sum(found[name] > 0 for name in having) == min(limit, len(having))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(1, 4))
def test_micro_batch_after_micro_batch_everything_comes(have: list[int], limit: int) -> None:
    left = {f"s{number}": count for number, count in enumerate(have)}
    for _ in range(-(-sum(have) // limit)):
        taken = shares(left, limit)
        left = {name: count - taken[name] for name, count in left.items()}
    assert not any(left.values())
