"""How many examples Hypothesis tries, by the profile that was asked for."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 100
"""What Hypothesis tries where nothing is said; the profile `thorough` says twenty times that."""


def examples(usual: int) -> int:
    """`@settings(max_examples=examples(30))`: 30 in a usual run, and more or fewer where the profile says
    so."""
    return max(1, usual * settings().max_examples // _USUAL)
