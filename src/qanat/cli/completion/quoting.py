"""Words as a shell reads them back."""

from __future__ import annotations

from collections.abc import Iterable


def single(text: str) -> str:
    """In single quotes, as bash and zsh take them."""
    return "'" + text.replace("'", "'\\''") + "'"


def of_fish(text: str) -> str:
    """In single quotes, in which fish reads a backslash."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def pattern(words: Iterable[str]) -> str:
    """A pattern of `case` for any of these words."""
    return "|".join(single(word) for word in words)
