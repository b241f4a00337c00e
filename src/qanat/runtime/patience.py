"""How long a client waits for servers: one word, one unit and one default wherever a user meets it."""

import math
import re

from qanat.events.errors import LocalError

PATIENCE_S = 30.0
"""Longer than a restart, shorter than a person waits."""
_MOST_S = 7 * 24 * 3600.0
"""A week: whoever wants more wants a supervisor."""
_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600}


def patience_s(given: object) -> float:
    """Seconds of what a user gave: a number of them, or a text as `4`, `0.5`, `30s`, `2m`. Raises
    `LocalError`."""
    if isinstance(given, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", given.strip().lower())
        seconds = float(found[1]) * _UNITS[found[2]] if found else math.nan
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given)
    else:
        seconds = math.nan
    if not 0 <= seconds <= _MOST_S:
        raise LocalError(
            "patience is how many seconds to wait for servers that are away, as 30 or '2m', up to a week; 0"
            f" is not to wait; not {given!r}"
        )
    return seconds
