"""What spells a number, in a filter and in an attribute's text, and which number that is."""

import math
import re

from qanat.events.filters.errors import FilterError

NUMERAL = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""The one spelling of numbers; whoever uses it anchors it at both ends."""

INT_MIN, INT_END = -(1 << 63), 1 << 64  # what int64 and uint64 hold together

_NUMERAL = re.compile(NUMERAL)
_WHOLE = re.compile(r"(-?)0*([0-9]+)")


def normal(value: int | float) -> int | float:
    """The one form of a number: an int wherever it is whole and fits 64 bits, else the nearest float64.

    So 5, 5.0 and -0.0 have one form each, and comparing two forms is comparing two numbers exactly.
    """
    if isinstance(value, int):
        if INT_MIN <= value < INT_END:
            return value
        try:
            return float(value)
        except OverflowError:
            value = math.inf
    if not math.isfinite(value):
        raise FilterError("the number is too large")
    return int(value) if value.is_integer() and INT_MIN <= value < INT_END else value


def is_numeral(text: str) -> bool:
    return _NUMERAL.fullmatch(text) is not None


def read(text: str) -> int | float | None:
    """The number that the text spells, in its one form; None when it spells none, or one beyond float64."""
    if not _NUMERAL.fullmatch(text):
        return None
    rounded = float(text)
    if not math.isfinite(rounded):
        return None
    whole = _WHOLE.fullmatch(text)  # without leading zeros, which int() would count towards its limit
    return normal(rounded if whole is None else int(whole[1] + whole[2]))
