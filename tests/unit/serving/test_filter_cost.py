"""Which filters are parsed while everybody waits."""

import time

import pytest

from qanat.events.filters import FilterError, parse
from qanat.serving.filter_cost import LONG_TEXT, is_long


def pairs(count: int) -> str:
    return " or ".join(f"(a{number} = 1 and b{number} = 2)" for number in range(count))


def test_what_unfolds_far_is_long_however_short_its_text_is() -> None:
    assert is_long([f"not ({pairs(10)} or c = 1)"])
    assert is_long(["a = 1", f"not ({pairs(8)})"])
    assert is_long(["a = " + "x" * LONG_TEXT])
    assert is_long(["a = 1"] * 100)
    assert not is_long(["symbol = 'ACME' and (price in 10..20 or not exists price)"])


@pytest.mark.parametrize("where", [f"not ({pairs(5)})", " and ".join(["(a = 1 or b = 2)"] * 6)])
def test_what_is_not_long_takes_little(where: str) -> None:
    assert not is_long([where])
    took = []
    for _ in range(5):
        began = time.thread_time()
        try:
            parse(where)
        except FilterError:
            pass
        took.append(time.thread_time() - began)
    assert min(took) < 0.02
